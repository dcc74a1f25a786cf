// SPDX-License-Identifier: Apache-2.0
#include "backend/portable/program.h"

#include "backend/backend.h"
#include "backend/portable/rows.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "support/default_settings.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

namespace normjit {

using backend::portable::run_final_reduce;
using backend::portable::run_rows;

struct PortableProgram::Impl {
    explicit Impl(plan::Plan made) : plan(std::move(made)) {}
    plan::Plan plan;
    plan::Epilogue shared = plan::epilogue_of(plan, false), per_slice = plan::epilogue_of(plan, true);
};

namespace {

bool same_tensors(const Spec& spec, const ir::Function& declared, const ir::Function& function) {
    for (const ir::Value& value : function.values) {
        if (value.op != ir::Op::input) continue;
        if (!spec.depends_on(value.tensor) || declared.dtype(value.tensor) != function.dtype(value.tensor))
            return false;
    }
    for (const ir::Output& output : function.outputs) {
        if (!spec.writes(output.tensor) || declared.dtype(output.tensor) != function.dtype(output.tensor)) return false;
    }
    return function.cols == spec.cols && function.compute == spec.compute();
}

}  // namespace

Expected<PortableProgram> PortableProgram::make(const Artifact& artifact) {
    if (artifact.format != CodeFormat::portable) return invalid_argument("portable: the artifact holds machine code");
    const DefaultSettings settings;  // applies to the formula's numbers
    const Spec spec = kernel_spec(artifact.spec);
    const auto* text = reinterpret_cast<const char*>(artifact.code.data());
    const ir::Function declared = frontend::declare(spec);
    NORMJIT_TRY(ir::Function function, ir::parse({text, artifact.code.size()}, declared.operands));
    NORMJIT_RETURN_IF_ERROR(ir::verify(function));
    if (!same_tensors(spec, declared, function)) return invalid_argument("portable: the formula is not the spec's");
    // The text repeats a constant at each use, so the function has more values than the one that was compiled.
    function = passes::assign_sweeps(passes::remove_dead(passes::merge_common(function)));
    NORMJIT_TRY(plan::Plan plan, plan::build(spec, artifact.schedule, artifact.target, std::move(function)));
    plan.geometry.cpu.split_rows = 0;  // there is no code for ranges of columns
    if (plan.geometry != artifact.geometry) return invalid_argument("portable: the geometry is not the formula's");
    NORMJIT_RETURN_IF_ERROR(backend::portable_backend.legal(plan));
    return PortableProgram(std::make_shared<const Impl>(std::move(plan)));
}

void PortableProgram::rows(const SlicedRowsTask& task) const {
    const DefaultSettings settings;
    run_rows(impl_->plan, task.task, task.continues != 0);
}

void PortableProgram::final_reduce(const FinalTask& task) const {
    const DefaultSettings settings;
    run_final_reduce(impl_->plan, task.per_slice != 0 ? impl_->per_slice : impl_->shared, task);
}

}  // namespace normjit
