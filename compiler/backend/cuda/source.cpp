// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/source.h"

#include "artifact/cuda_abi.h"
#include "artifact/cuda_fields.h"
#include "backend/cuda/expression.h"
#include "support/lines.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

namespace normjit::backend::cuda {

namespace {

using plan::PlannedPath;

class Printer : Lines {
  public:
    explicit Printer(const plan::Plan& plan) : plan_(plan) {}

    std::string text() {
        header();
        out_ += print_formula(plan_);
        for (const PlannedPath& planned : plan_.cuda().paths) schedule(planned);
        for (const PlannedPath& planned : plan_.cuda().paths) {
            for (const CudaLaunch& launch : planned.path.launches) {
                if (launch.grid != CudaGrid::columns_by_outputs) kernel(planned, launch);
            }
        }
        final_reduce();
        return std::move(out_);
    }

  private:
    void header() {
        line("// {}", to_text(plan_.spec));
        line("// {}", to_text(plan_.schedule));
        line("// {}", to_text(plan_.target));
        line("#define NORMJIT_PROGRESS_SLOTS {}", cuda_progress_slots);
        if (plan_.spec.has_slices()) line("#define NORMJIT_SLICES");
        for (const CudaForm form : {CudaForm::rows, CudaForm::two_pass}) {
            const auto has_form = [&](const PlannedPath& planned) { return planned.schedule.form == form; };
            if (std::ranges::any_of(plan_.cuda().paths, has_form))
                line("#include \"{}_kernel.cuh\"", form == CudaForm::rows ? "row" : "two_pass");
        }
        if (has_final_reduce(plan_)) line("#include \"final_reduce.cuh\"");
        if (std::ranges::any_of(plan_.function.values, [](const ir::Value& value) { return is_in_math(value.op); }))
            line("#include \"functions.cuh\"");
        line("using namespace normjit;\n");
    }

    static std::string_view struct_of(const PlannedPath& planned) {
        return planned.suffix.empty() ? "Plan" : "UnalignedPlan";
    }

    void field(std::string_view name, int64_t value) { line("    static constexpr int {} = {};", name, value); }
    void field(std::string_view name, CudaStaging value) {
        line("    static constexpr Staging {} = Staging::{};", name, normjit::name(value));
    }
    void field(std::string_view name, CudaMemory value) {
        line("    static constexpr Memory {} = Memory::{};", name, normjit::name(value));
    }
    void field(std::string_view, CudaForm) {}  // it chooses the kernel

    void schedule(const PlannedPath& planned) {
        line("struct {} : Formula {{", struct_of(planned));
        for (const CudaField& each : fields(planned.schedule))
            std::visit([&](auto value) { field(each.name, value); }, each.value);
        field("shared_bytes", planned.shared_bytes);
        line("    static constexpr bool keeps_elements = {};", planned.keeps_elements);
        line("}};\n");
    }

    static std::string_view skeleton(CudaGrid grid) {
        switch (grid) {
            case CudaGrid::row_groups:
            case CudaGrid::one_group: return "row_kernel";
            case CudaGrid::rows: return "two_pass_rows";
            case CudaGrid::columns_by_row_groups: return "two_pass_columns";
            case CudaGrid::columns_by_outputs: break;
        }
        return "final_reduce";
    }

    void kernel(const PlannedPath& planned, const CudaLaunch& launch) {
        std::string bounds = fmt::format("{}", launch.threads);
        if (launch.grid != CudaGrid::columns_by_outputs) bounds += fmt::format(", {}", planned.schedule.blocks_per_sm);
        line("extern \"C\" __global__ void __launch_bounds__({}) {}(const __grid_constant__ Arguments a) {{", bounds,
             launch.entry);
        line("    normjit::{}<{}>(a);", skeleton(launch.grid), struct_of(planned));
        line("}}\n");
    }

    /// Prints the last launch. All paths share it unless their partials differ.
    void final_reduce() {
        for (const PlannedPath& planned : plan_.cuda().paths) {
            if (has_final_reduce(plan_)) kernel(planned, planned.path.launches.back());
            if (!plan_.operands.has_sums_of_runs()) return;
        }
    }

    const plan::Plan& plan_;
};

}  // namespace

std::string print_source(const plan::Plan& plan) { return Printer(plan).text(); }

}  // namespace normjit::backend::cuda
