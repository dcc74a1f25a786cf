// SPDX-License-Identifier: Apache-2.0
// The whole compiler at a glance: build -> passes -> plan -> back end.
#include "normjit/compile.h"

#include "backend/backend.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "support/default_settings.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <fmt/format.h>

namespace normjit {

Status legality(const Spec& spec, const Schedule& schedule, const Target& target) {
    const DefaultSettings settings;
    return backend::make_legal_plan(spec, schedule, target).status();
}

Expected<Artifact> compile(const Spec& spec, const Schedule& schedule, const Target& target) {
    const DefaultSettings settings;
    NORMJIT_TRY(const backend::LegalPlan legal, backend::make_legal_plan(spec, schedule, target));
    return legal.backend->emit(legal.plan);
}

Expected<std::string> backend_of(const Target& target) {
    NORMJIT_TRY(const backend::Backend* backend, backend::find(target));
    return backend::full_name(*backend);
}

Expected<std::string> backend_of(const Spec& spec, const Schedule& schedule, const Target& target) {
    const DefaultSettings settings;
    NORMJIT_TRY(const backend::LegalPlan legal, backend::make_legal_plan(spec, schedule, target));
    return backend::full_name(*legal.backend);
}

Expected<std::string> emit_stage(const Spec& spec, const Schedule& schedule, const Target& target,
                                 std::string_view stage) {
    const DefaultSettings settings;
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    NORMJIT_RETURN_IF_ERROR(validate(target));
    if (stage == "ir") return ir::print(frontend::build(spec));
    if (stage == "plan") {
        NORMJIT_TRY(const plan::Plan plan, plan::make(spec, schedule, target));
        return plan::print(plan);
    }
    std::string allowed = "ir plan";
    for (const passes::Pass& pass : passes::pipeline()) {
        if (stage == fmt::format("ir:{}", pass.name)) {
            NORMJIT_TRY(const ir::Function function,
                        passes::run_pipeline(frontend::build(kernel_spec(spec)), target, pass.name));
            return ir::print(function);
        }
        allowed += fmt::format(" ir:{}", pass.name);
    }
    NORMJIT_TRY(const backend::Backend* backend, backend::find(target));
    for (const std::string_view name : backend->stages) {
        if (stage == name) {
            NORMJIT_TRY(const backend::LegalPlan legal, backend::make_legal_plan(spec, schedule, target));
            return backend->print_stage(legal.plan, stage);
        }
        allowed += fmt::format(" {}", name);
    }
    return invalid_argument(fmt::format("unknown stage '{}'; allowed: {}", stage, allowed));
}

Expected<std::string> list_instructions(const Artifact& artifact) { return backend::list_instructions(artifact); }

std::vector<std::string> pass_names() {
    std::vector<std::string> names;
    for (const passes::Pass& pass : passes::pipeline()) names.emplace_back(pass.name);
    return names;
}

}  // namespace normjit
