// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/expression.h"
#include "backend/cuda/source.h"
#include "ir/groups.h"
#include "support/contains.h"
#include "support/lines.h"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit::backend::cuda {

namespace {

using ir::Op;
using ir::Shape;
using ir::ValueId;
using plan::Sweep;

constexpr std::string_view device_function = "static __device__ __forceinline__ void";

class FormulaPrinter : Lines {
  public:
    explicit FormulaPrinter(const plan::Plan& plan)
        : plan_(plan),
          function_(plan.function),
          operands_(plan.operands),
          expressions_(plan),
          same_in_groups_(ir::same_in_groups(plan.function)),
          group_maxima_(plan.cuda().group_maxima),
          group_values_(plan.cuda().group_values) {}

    std::string text() {
        formula();
        return std::move(out_);
    }

  private:
    bool has_epilogue() const { return !plan_.epilogue.values.empty(); }
    int levels() const { return static_cast<int>(plan_.sweeps.size()) - 1; }

    void formula() {
        line("struct Formula {{");
        out_ += print_constants(plan_);
        line("");
        row_struct();
        begin();
        if (!group_maxima_.empty()) {
            group_operands();
            of_group();
        }
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

    /// Prints the arithmetic on row values that precedes sweep `index`.
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

    /// Prints "const Math x = m[0], dy = m[1], gamma = c[0];" for what the sweep reads. In `m`, the neighbours of all
    /// matrices come after the matrices.
    void element_inputs(const Sweep& sweep) {
        std::vector<std::string> definitions;
        const auto add = [&](std::span<const Operand> operands, std::string_view array) {
            for (size_t i = 0; i < operands.size(); ++i) {
                if (reads(plan_, sweep, operands[i].tensor))
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

    /// Returns the neighbour of an input that the sweep uses.
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
        const bool has_groups = sweep.is_last() && !group_maxima_.empty();
        for (size_t i = 0; i < group_values_.size() && has_groups; ++i)
            line("        const Math {} = out.group[{}];", expressions_.name(group_values_[i]), i);
        element_values(without(sweep, [&](ValueId id) { return has_groups && same_in_groups_[id]; }), index);
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

    template <class IsLeftOut>
    static Sweep without(Sweep sweep, const IsLeftOut& is_left_out) {
        for (auto* ids : {&sweep.elements, &sweep.column_values}) std::erase_if(*ids, is_left_out);
        return sweep;
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

    /// Prints the function that computes the operands of group_max.
    void group_operands() {
        line("    template <bool keeps>");
        line("    {} group_operands(const Row& row, const Math* m, const Math* c, Values<Formula, keeps>& out) {{",
             device_function);
        ir::PerValue<bool> needed(function_.values.size());
        for (const ValueId id : group_maxima_) needed[function_[id].operands[0]] = true;
        mark_needed(function_, needed, [&](ValueId id) { return function_[id].shape != Shape::rows; });
        element_values(without(plan_.sweeps.back(), [&](ValueId id) { return !needed[id]; }), levels());
        for (size_t i = 0; i < group_maxima_.size(); ++i)
            line("        out.group[{}] = {};", i, operand(group_maxima_[i]));
        line("    }}");
    }

    /// Prints the function that computes the values of a group that its elements read, from the group's largest values.
    void of_group() {
        line("    template <bool keeps>");
        line("    {} of_group(const Row& row, Values<Formula, keeps>& out) {{", device_function);
        ir::PerValue<bool> needed(function_.values.size());
        for (const ValueId id : group_values_) needed[id] = true;
        mark_needed(function_, needed, [&](ValueId id) { return function_[id].op != Op::group_max; });
        for (size_t i = 0; i < group_maxima_.size(); ++i)
            line("        const Math {} = out.group[{}];", expressions_.name(group_maxima_[i]), i);
        for (ValueId id = 0; id < function_.size(); ++id) {
            if (!needed[id] || !same_in_groups_[id] || function_[id].op == Op::group_max) continue;
            if (!expressions_.name(id).empty())
                line("        const Math {} = {};", expressions_.name(id), expressions_.body(id));
        }
        for (size_t i = 0; i < group_values_.size(); ++i)
            line("        out.group[{}] = {};", i, expressions_.name(group_values_[i]));
        line("    }}");
    }

    std::string element_value(ValueId id, int sweep) const {
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

    ValueId value_of(const Operand& output) const {
        return std::ranges::find(function_.outputs, output.tensor, &ir::Output::tensor)->value;
    }

    void partials(const Sweep& sweep, int index) {
        const std::vector<plan::ColumnSum>& sums = plan_.cuda().sums;
        for (size_t i = 0; i < sums.size() && index == plan_.column_sweep; ++i)
            line("        out.column[{}] = {};", i, operand(function_[sums[i].value].operands[0]));
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

    /// Prints, for each column output, a function of the finished sums and of [N] inputs.
    void finish() {
        const auto outputs = operands_.column_outputs();
        for (size_t i = 0; i < outputs.size() && has_epilogue(); ++i) {
            line(
                "    static __device__ __forceinline__ Math finish(Index<{}>, const Arguments& a, int64 slice, int64 "
                "column, const Math* sum) {{",
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
    const ir::PerValue<bool> same_in_groups_;
    const std::vector<ValueId>& group_maxima_;
    const std::vector<ValueId>& group_values_;
};

}  // namespace

std::string print_formula(const plan::Plan& plan) { return FormulaPrinter(plan).text(); }

}  // namespace normjit::backend::cuda
