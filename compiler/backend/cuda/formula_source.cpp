// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/formula_source.h"

#include "backend/cuda/expression.h"
#include "support/lines.h"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace normjit::backend::cuda {

namespace {

using ir::Op;
using ir::Shape;
using ir::ValueId;
using plan::Sweep;

constexpr std::string_view device_function = "static __device__ __forceinline__ void";

std::string_view type_name(DType type) {
    constexpr std::string_view names[] = {"float", "bf16", "f16", "double", "e4m3", "e5m2", "e8m0"};
    return names[static_cast<size_t>(type)];
}

bool contains(const std::vector<ValueId>& ids, ValueId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}

class FormulaPrinter : Lines {
  public:
    explicit FormulaPrinter(const plan::Plan& plan)
        : plan_(plan), function_(plan.function), operands_(plan.operands), expressions_(plan) {
        for (ValueId id = 0; id < function_.size(); ++id) {
            if (function_[id].op == Op::group_max) group_maxima_.push_back(id);
        }
    }

    std::string text() {
        formula();
        return std::move(out_);
    }

  private:
    bool has_epilogue() const { return !plan_.epilogue.values.empty(); }
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

    /// Returns a number with bit i set where is_set(items[i]).
    template <class Items, class IsSet>
    static unsigned mask_of(const Items& items, const IsSet& is_set) {
        unsigned mask = 0;
        for (size_t i = 0; i < items.size(); ++i) mask |= is_set(items[i]) ? 1u << i : 0;
        return mask;
    }

    /// Returns mask_of_sweep() of each sweep, for an initialiser.
    template <class MaskOfSweep>
    std::string of_sweeps(const MaskOfSweep& mask_of_sweep) const {
        std::vector<unsigned> masks;
        for (const Sweep& sweep : plan_.sweeps) masks.push_back(mask_of_sweep(sweep));
        return fmt::format("{}", fmt::join(masks, ", "));
    }

    /// Returns, for each sweep, a mask with a bit for each tensor that it reads.
    std::string masks(std::span<const Operand> operands) const {
        return of_sweeps([&](const Sweep& sweep) {
            return mask_of(operands, [&](const Operand& operand) { return reads(sweep, operand.tensor); });
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

    bool reads(const Sweep& sweep, Tensor tensor) const {
        for (const auto* ids : {&sweep.elements, &sweep.column_values}) {
            for (const ValueId id : *ids) {
                if (function_[id].op == Op::input && function_[id].tensor == tensor) return true;
            }
        }
        return false;
    }

    void formula() {
        line("struct Formula {{");
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
        line("    static constexpr int group = {}, group_maxima = {};", plan_.spec.group_columns(),
             group_maxima_.size());
        line("    static constexpr uint32 grouped_outputs = {};", mask_of(operands_.matrix_outputs(), is_of_groups));
        line("    static constexpr uint32 matrices_read[] = {{{}}}, columns_read[] = {{{}}};",
             masks(operands_.matrices()), masks(operands_.columns()));
        line("    static constexpr bool dependents = {}, epilogue = {}, neighbours = {};", plan_.cuda().dependents,
             has_epilogue(), plan_.spec.has_neighbours());
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
        line("");
        row_struct();
        begin();
        if (!group_maxima_.empty()) group_operands();
        for (int i = 0; i <= levels(); ++i) {
            element(i);
            if (i < levels()) reduced(i);
        }
        row_outputs();
        finish();
        line("}};\n");
    }

    void row_struct() {
        std::vector<std::string> names;
        for (const ValueId id : plan_.row_slots) names.push_back(expressions_.name(id));
        if (names.empty()) {
            line("    struct Row {{}};");
        } else {
            line("    struct Row {{ Math {}; }};", fmt::join(names, ", "));
        }
    }

    void assign_row(ValueId id, const std::string& value) {
        const bool kept = expressions_.in_row(id);
        line("        {}{} = {};", kept ? "row." : "const Math ", expressions_.name(id), value);
    }

    /// Prints the arithmetic on row values before sweep `index`.
    void row_values(int index) {
        for (const ValueId id : plan_.sweeps[static_cast<size_t>(index)].row_values) {
            if (function_[id].op == Op::input || expressions_.name(id).empty()) continue;
            assign_row(id, expressions_.body(id));
        }
    }

    void begin() {
        line("    {} begin(Row& row, const Math* in) {{", device_function);
        for (size_t i = 0; i < operands_.rows().size(); ++i) {
            for (ValueId id = 0; id < function_.size(); ++id) {
                const ir::Value& value = function_[id];
                if (value.op == Op::input && value.tensor == operands_.rows()[i].tensor)
                    assign_row(id, fmt::format("in[{}]", i));
            }
        }
        row_values(0);
        line("    }}");
    }

    /// Prints "const Math x = m[0], dy = m[1], gamma = c[0];" for what the sweep reads. The neighbours of all matrices
    /// follow the matrices.
    void element_inputs(const Sweep& sweep) {
        std::vector<std::string> definitions;
        const auto add = [&](std::span<const Operand> operands, std::string_view array) {
            for (size_t i = 0; i < operands.size(); ++i) {
                if (reads(sweep, operands[i].tensor))
                    definitions.push_back(
                        fmt::format("{} = {}[{}]", expressions_.identifier(operands[i].name), array, i));
                if (const auto other = neighbour_in(sweep, operands[i].tensor))
                    definitions.push_back(
                        fmt::format("{} = {}[{}]", expressions_.name(*other), array, operands.size() + i));
            }
        };
        add(operands_.matrices(), "m");
        add(operands_.columns(), "c");
        if (!definitions.empty()) line("        const Math {};", fmt::join(definitions, ", "));
    }

    /// Returns the sweep's neighbour of an input.
    std::optional<ValueId> neighbour_in(const Sweep& sweep, Tensor tensor) const {
        for (const auto* ids : {&sweep.elements, &sweep.column_values}) {
            for (const ValueId id : *ids) {
                const ir::Value& value = function_[id];
                if (value.op == Op::neighbour && function_[value.operands[0]].tensor == tensor) return id;
            }
        }
        return std::nullopt;
    }

    void element(int index) {
        const Sweep& sweep = plan_.sweeps[static_cast<size_t>(index)];
        line("    template <bool keeps>");
        line("    {} element(Index<{}>, const Row& row, const Math* m, const Math* c, Values<Formula, keeps>& out) {{",
             device_function, index);
        element_values(sweep, index);
        keep_elements(index);
        const int sums = index < levels() ? plan_.cuda().row_sums : 0;
        for (int s = 0; s < sums; ++s) {
            const bool there = static_cast<size_t>(s) < sweep.row_reductions.size();
            line("        out.sum[{}] = {};", s, there ? operand(sweep.row_reductions[static_cast<size_t>(s)]) : "0");
        }
        partials(sweep, index);
        const auto outputs = operands_.matrix_outputs();
        for (size_t i = 0; i < outputs.size() && sweep.is_last(); ++i)
            line("        out.output[{}] = {};", i, expressions_.use(value_of(outputs[i])));
        line("    }}");
    }

    void element_values(const Sweep& sweep, int index) {
        element_inputs(sweep);
        for (ValueId id = 0; id < function_.size(); ++id) {
            if (!contains(sweep.elements, id) && !contains(sweep.column_values, id)) continue;
            const Op op = function_[id].op;
            if (op == Op::input || op == Op::neighbour || op == Op::constant || expressions_.name(id).empty()) continue;
            line("        const Math {} = {};", expressions_.name(id), element_value(id, index));
        }
    }

    /// Prints the function of what group_max reads.
    void group_operands() {
        line("    template <bool keeps>");
        line("    {} group_operands(const Row& row, const Math* m, const Math* c, Values<Formula, keeps>& out) {{",
             device_function);
        ir::PerValue<bool> needed(function_.values.size());
        for (const ValueId id : group_maxima_) needed[function_[id].operands[0]] = true;
        mark_needed(function_, needed, [&](ValueId id) { return function_[id].shape != Shape::rows; });
        Sweep part = plan_.sweeps.back();
        for (auto* ids : {&part.elements, &part.column_values})
            std::erase_if(*ids, [&](ValueId id) { return !needed[id]; });
        element_values(part, levels());
        for (size_t i = 0; i < group_maxima_.size(); ++i)
            line("        out.group[{}] = {};", i, operand(group_maxima_[i]));
        line("    }}");
    }

    std::string element_value(ValueId id, int sweep) const {
        if (function_[id].op == Op::group_max)
            return fmt::format("out.group[{}]", std::ranges::find(group_maxima_, id) - group_maxima_.begin());
        const std::vector<plan::KeptElement>& kept = plan_.cuda().kept_elements;
        const auto place = std::ranges::find(kept, id, &plan::KeptElement::id);
        if (place == kept.end() || place->from == sweep) return expressions_.body(id);
        return fmt::format("keeps ? out.kept[{}] : {}", place - kept.begin(), expressions_.body(id));
    }

    void keep_elements(int sweep) {
        const std::vector<plan::KeptElement>& kept = plan_.cuda().kept_elements;
        for (size_t i = 0; i < kept.size(); ++i) {
            if (kept[i].from == sweep) line("        out.kept[{}] = {};", i, expressions_.name(kept[i].id));
        }
    }

    /// Returns, for each of the kept elements, the sweep that computes it.
    std::string kept_from() const {
        std::vector<int> sweeps;
        for (const plan::KeptElement& kept : plan_.cuda().kept_elements) sweeps.push_back(kept.from);
        return sweeps.empty() ? "0" : fmt::format("{}", fmt::join(sweeps, ", "));
    }

    ValueId value_of(const Operand& output) const {
        return std::ranges::find(function_.outputs, output.tensor, &ir::Output::tensor)->value;
    }

    void partials(const Sweep& sweep, int index) {
        const std::vector<ValueId>& sums = plan_.cuda().sum_of_output;
        for (size_t i = 0; i < sums.size() && index == plan_.column_sweep; ++i)
            line("        out.column[{}] = {};", i, operand(function_[sums[i]].operands[0]));
        const std::vector<ir::Output>& scalars = plan_.epilogue.scalars;
        for (size_t i = 0; i < scalars.size() && sweep.is_last(); ++i)
            line("        out.scalar[{}] = {};", i, operand(function_[scalars[i].value].operands[0]));
    }

    void row_outputs() {
        const auto outputs = operands_.row_outputs();
        if (outputs.empty()) return;
        line("    {} row_outputs(const Row& row, Math* out) {{", device_function);
        for (size_t i = 0; i < outputs.size(); ++i)
            line("        out[{}] = {};", i, expressions_.use(value_of(outputs[i])));
        line("    }}");
    }

    /// Prints, for each column output, a function of its own finished sum and of [N] inputs.
    void finish() {
        const auto outputs = operands_.column_outputs();
        for (size_t i = 0; i < outputs.size() && has_epilogue(); ++i) {
            line(
                "    static __device__ __forceinline__ Math finish(Index<{}>, const Arguments& a, int64 slice, int64 "
                "column, Math sum) {{",
                i);
            ir::PerValue<bool> needed(function_.values.size());
            needed[value_of(outputs[i])] = true;
            mark_needed(function_, needed, [&](ValueId id) { return function_[id].op != Op::final_reduce; });
            for (const ValueId id : plan_.epilogue.values) {
                if (needed[id]) finish_value(id);
            }
            line("        return {};", expressions_.use(value_of(outputs[i])));
            line("    }}");
        }
    }

    void finish_value(ValueId id) {
        const ir::Value& value = function_[id];
        const bool is_neighbour = value.op == Op::neighbour;
        if (value.op == Op::input || is_neighbour) {
            const Operand& operand = operands_.of(is_neighbour ? function_[value.operands[0]].tensor : value.tensor);
            const size_t place = operands_.place(operand);
            line("        const Math {} = load_scalar<{}, Math>(a.operand[{}].data, {}{});", expressions_.name(id),
                 type_name(operand.dtype), place,
                 operand.is_per_slice() ? fmt::format("slice * a.slice_stride[{}] + ", place) : "",
                 is_neighbour ? "(column ^ 1)" : "column");
        } else if (!expressions_.name(id).empty()) {
            line("        const Math {} = {};", expressions_.name(id), expressions_.body(id));
        }
    }

    std::string operand(ValueId id) const { return expressions_.use(function_[id].operands[0]); }

    void reduced(int index) {
        const Sweep& sweep = plan_.sweeps[static_cast<size_t>(index)];
        line("    {} reduced(Index<{}>, Row& row, const Math* sum) {{", device_function, index);
        for (size_t s = 0; s < sweep.row_reductions.size(); ++s) {
            const bool is_mean = function_[sweep.row_reductions[s]].op == Op::row_mean;
            assign_row(sweep.row_reductions[s], fmt::format("sum[{}]{}", s, is_mean ? " * per_column" : ""));
        }
        row_values(index + 1);
        line("    }}");
    }

    const plan::Plan& plan_;
    const ir::Function& function_;
    const OperandList& operands_;
    const Expressions expressions_;
    std::vector<ValueId> group_maxima_;
};

}  // namespace

std::string print_formula(const plan::Plan& plan) { return FormulaPrinter(plan).text(); }

}  // namespace normjit::backend::cuda
