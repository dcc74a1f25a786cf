// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/expression.h"
#include "backend/cuda/source.h"
#include "plan/cuda.h"
#include "support/lines.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit::backend::cuda {

namespace {

using ir::Op;
using ir::ValueId;
using plan::Sweep;

class Constants : Lines {
  public:
    explicit Constants(const plan::Plan& plan) : plan_(plan), function_(plan.function), operands_(plan.operands) {}

    std::string text() {
        line("    using Math = {};", type_name(function_.compute));
        list("Matrices", operands_.matrices());
        list("Columns", operands_.columns());
        list("Rows", operands_.rows());
        list("Outputs", operands_.matrix_outputs());
        list("RowOutputs", operands_.row_outputs());
        list("ColumnOutputs", operands_.column_outputs());
        line("    static constexpr int cols = {}, levels = {}, row_sums = {}, column_sweep = {};", plan_.spec.cols,
             levels(), plan_.cuda().row_sums, plan_.column_sweep);
        line("    static constexpr uint32 row_maxima[] = {{{}}};", row_maxima());
        line("    static constexpr int kept = {}, kept_from[] = {{{}}};", plan_.cuda().kept_elements.size(),
             kept_from());
        const auto is_of_groups = [](const Operand& output) { return output.axes.has_groups(); };
        line("    static constexpr int group = {}, group_maxima = {}, group_values = {};", plan_.spec.group_columns(),
             plan_.cuda().group_maxima.size(), plan_.cuda().group_values.size());
        line("    static constexpr uint32 grouped_outputs = {};", mask_of(operands_.matrix_outputs(), is_of_groups));
        line("    static constexpr uint32 matrices_read[] = {{{}}}, columns_read[] = {{{}}};",
             masks(operands_.matrices()), masks(operands_.columns()));
        line("    static constexpr bool dependents = {}, epilogue = {}, neighbours = {};", plan_.cuda().dependents,
             !plan_.epilogue.values.empty(), plan_.spec.has_neighbours());
        line("    static constexpr bool one_group = {}, sliced = {}, per_slice = {};", plan_.cuda().one_group,
             plan_.spec.has_slices(), plan_.spec.has_per_slice());
        const auto is_shared = [&](const Operand& matrix) { return plan_.spec.has_slices() && !matrix.axes.slice; };
        line("    static constexpr uint32 matrices_shared = {};", mask_of(operands_.matrices(), is_shared));
        const auto is_scalar = [](const Operand& input) { return input.axes.is_scalar(); };
        line("    static constexpr int scalar_inputs = {};", std::ranges::count_if(operands_.rows(), is_scalar));
        line("    static constexpr uint32 columns_per_slice = {}, outputs_per_slice = {};",
             mask_per_slice(operands_.columns()), mask_per_slice(operands_.column_outputs()));
        line("    static constexpr int column_runs[] = {{{}}}, output_runs[] = {{{}}};", runs(operands_.columns()),
             runs(operands_.column_outputs()));
        sums();
        line("    static constexpr int row_bytes = {}, scalars = {}, scalar_parts = {};", plan_.geometry.cuda.row_bytes,
             operands_.scalar_outputs().size(), plan_.cuda().scalar_parts);
        if (has_final_reduce(plan_)) {
            const plan::CudaFinal& final = plan_.cuda().final;
            line("    static constexpr int final_threads = {}, final_columns = {}, final_loads = {};", final.threads,
                 final.columns, final.loads);
        }
        if (levels() > 0) {
            line("    static constexpr Math per_column = {};  // 1 / cols",
                 literal(1.0 / static_cast<double>(plan_.spec.cols), function_.compute));
        }
        return std::move(out_);
    }

  private:
    int levels() const { return static_cast<int>(plan_.sweeps.size()) - 1; }

    void list(std::string_view name, std::span<const Operand> operands) {
        std::vector<std::string_view> types, names;
        for (const Operand& operand : operands) {
            types.push_back(type_name(operand.dtype));
            names.push_back(operand.name);
        }
        line("    using {} = List<{}>;{}{}", name, fmt::join(types, ", "), names.empty() ? "" : "  // ",
             fmt::join(names, ", "));
    }

    /// Returns a number in which bit i is set if is_set(items[i]).
    template <class Items, class IsSet>
    static unsigned mask_of(const Items& items, const IsSet& is_set) {
        unsigned mask = 0;
        for (size_t i = 0; i < items.size(); ++i) mask |= is_set(items[i]) ? 1u << i : 0;
        return mask;
    }

    /// Returns mask_of_sweep() for each sweep, as an initialiser.
    template <class MaskOfSweep>
    std::string of_sweeps(const MaskOfSweep& mask_of_sweep) const {
        std::vector<unsigned> masks;
        for (const Sweep& sweep : plan_.sweeps) masks.push_back(mask_of_sweep(sweep));
        return fmt::format("{}", fmt::join(masks, ", "));
    }

    /// Returns, for each sweep, a mask with a bit for each tensor that it reads.
    std::string masks(std::span<const Operand> operands) const {
        return of_sweeps([&](const Sweep& sweep) {
            return mask_of(operands, [&](const Operand& operand) { return reads(plan_, sweep, operand.tensor); });
        });
    }

    /// Returns, for each sweep, a mask with a bit for each row reduction that is a maximum.
    std::string row_maxima() const {
        return of_sweeps([&](const Sweep& sweep) {
            return mask_of(sweep.row_reductions, [&](ValueId id) { return function_[id].op == Op::row_max; });
        });
    }

    static unsigned mask_per_slice(std::span<const Operand> operands) {
        return mask_of(operands, [](const Operand& operand) { return operand.is_per_slice(); });
    }

    static std::string runs(std::span<const Operand> operands) {
        std::vector<int64_t> all;
        for (const Operand& operand : operands) all.push_back(operand.axes.run);
        return all.empty() ? "1" : fmt::format("{}", fmt::join(all, ", "));
    }

    void sums() {
        const std::vector<plan::ColumnSum>& sums = plan_.cuda().sums;
        std::vector<int> outputs;
        for (const plan::ColumnSum& sum : sums) outputs.push_back(sum.output);
        line("    static constexpr int sums = {}, sum_runs[] = {{{}}}, sum_outputs[] = {{{}}};", sums.size(),
             list_of(plan::runs_of(sums)), list_of(outputs));
        line("    static constexpr uint32 sums_per_slice = {}, sums_of_outputs[] = {{{}}};",
             mask_of(sums, [](const plan::ColumnSum& sum) { return sum.per_slice; }),
             list_of(plan_.cuda().sums_of_outputs));
    }

    /// Returns the numbers as an initialiser, which may not be empty.
    template <class Numbers>
    static std::string list_of(const Numbers& numbers) {
        return numbers.empty() ? "0" : fmt::format("{}", fmt::join(numbers, ", "));
    }

    /// Returns, for each kept element, the sweep that computes it.
    std::string kept_from() const {
        std::vector<int> sweeps;
        for (const plan::KeptElement& kept : plan_.cuda().kept_elements) sweeps.push_back(kept.from);
        return sweeps.empty() ? "0" : fmt::format("{}", fmt::join(sweeps, ", "));
    }

    const plan::Plan& plan_;
    const ir::Function& function_;
    const OperandList& operands_;
};

}  // namespace

bool reads(const plan::Plan& plan, const Sweep& sweep, Tensor tensor) {
    for (const auto* ids : {&sweep.elements, &sweep.column_values}) {
        for (const ValueId id : *ids) {
            if (plan.function[id].op == Op::input && plan.function[id].tensor == tensor) return true;
        }
    }
    return false;
}

std::string print_constants(const plan::Plan& plan) { return Constants(plan).text(); }

}  // namespace normjit::backend::cuda
