// SPDX-License-Identifier: Apache-2.0
// Prints a function as its formula: one named value per line. A value that is used once is printed inside its user,
// unless that would nest deeper than the parser accepts.
#include "ir/expression_parser.h"
#include "ir/formula.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

int precedence(Op op) {
    if (op == Op::add || op == Op::sub) return 1;
    return op == Op::mul || op == Op::div ? 2 : 3;
}

class Printer final : public Formula {
  public:
    explicit Printer(const Function& function)
        : Formula(function),
          uses_(function.use_counts()),
          is_shared_(function.values.size()),
          names_(function.values.size()) {
        find_shared();
        std::set<std::string_view> given;
        for (ValueId id = 0; id < function.size(); ++id) given.insert(names_[id] = function[id].name);
        PerValue<int> depths(function.values.size());  // how many operations are nested in the value's text
        for (ValueId id = 0; id < function.size(); ++id) {
            if (!is_leaf(id)) depths[id] = 1 + deepest_operand(id, depths);
            if (!names_[id].empty() || (!needs_statement(id) && depths[id] < deepest_nesting)) continue;
            names_[id] = fmt::format("t{}", id);
            while (given.contains(names_[id])) names_[id] += '_';
        }
    }

    std::string function() const {
        std::string out = fmt::format("norm cols={} compute={}\n", function_.cols, normjit::name(function_.compute));
        out += "  in  " + inputs() + "\n";
        size_t width = 0;
        for (ValueId id = 0; id < function_.size(); ++id) {
            if (is_statement(id)) width = std::max(width, names_[id].size());
        }
        for (ValueId id = 0; id < function_.size(); ++id) {
            if (is_statement(id)) out += fmt::format("  {:<{}} = {}{}\n", names_[id], width, body(id), sweep(id));
        }
        return out + "  out " + outputs() + "\n";
    }

    std::optional<std::string> statement(ValueId id) const {
        if (!is_statement(id)) return std::nullopt;
        return names_[id] + " = " + body(id);
    }

    const PerValue<std::string>& names() const { return names_; }

  private:
    bool is_leaf(ValueId id) const { return function_[id].op == Op::input || function_[id].op == Op::constant; }
    bool is_statement(ValueId id) const { return !is_leaf(id) && !names_[id].empty(); }

    bool needs_statement(ValueId id) const { return !is_leaf(id) && (uses_[id] != 1 || is_shared_[id]); }

    /// Marks the values that are outputs or that another sweep reads.
    void find_shared() {
        for (const Output& output : function_.outputs) is_shared_[output.value] = true;
        for (const Value& user : function_.values) {
            for (int i = 0; i < user.operand_count(); ++i) {
                const ValueId operand = user.operands[static_cast<size_t>(i)];
                if (user.sweep != function_[operand].sweep) is_shared_[operand] = true;
            }
        }
    }

    int deepest_operand(ValueId id, const PerValue<int>& depths) const {
        int deepest = 0;
        for (int i = 0; i < function_[id].operand_count(); ++i) {
            const ValueId operand = function_[id].operands[static_cast<size_t>(i)];
            if (names_[operand].empty()) deepest = std::max(deepest, depths[operand]);
        }
        return deepest;
    }

    std::string name_in_use(ValueId id) const override {
        return function_[id].op == Op::constant ? fmt::format("{}", function_[id].constant) : names_[id];
    }

    std::string sweep(ValueId id) const {
        return function_[id].sweep < 0 ? "" : fmt::format("  @{}", function_[id].sweep);
    }

    std::string typed(Tensor tensor) const {
        const Operand& operand = function_.operand(tensor);
        return fmt::format("{}: {}{}", operand.name, operand.dtype ? normjit::name(*operand.dtype) : "none",
                           shape_text(operand));
    }

    std::string inputs() const {
        std::string out;
        for (const Value& value : function_.values) {
            if (value.op == Op::input) out += (out.empty() ? "" : ", ") + typed(value.tensor);
        }
        return out;
    }

    std::string outputs() const {
        std::string out;
        for (const Output& output : function_.outputs) {
            out += (out.empty() ? "" : ", ") + typed(output.tensor);
            const std::string value = use(output.value);
            if (value != function_.operand(output.tensor).name) out += " = " + value;
        }
        return out;
    }

    PerValue<int> uses_;
    PerValue<bool> is_shared_;
    PerValue<std::string> names_;
};

}  // namespace

std::string shape_text(const Operand& operand) {
    std::string shape(text(operand.shape));
    if (operand.group > 1) shape.insert(shape.size() - 1, fmt::format("/{}", operand.group));
    return shape;
}

std::string Formula::use(ValueId id, int outer) const {
    std::string name = name_in_use(id);
    return name.empty() ? body(id, outer) : name;
}

std::string Formula::body(ValueId id, int outer) const {
    const Value& value = function_[id];
    const OpInfo& op = info(value.op);
    if (!is_infix(id)) {
        std::string text = fmt::format("{}({}", function_name(value.op), use(value.operands[0]));
        if (op.operands == 2) text += ", " + use(value.operands[1]);
        return text + ")";
    }
    const int own = precedence(value.op);
    const std::string text =
        fmt::format("{} {} {}", use(value.operands[0], own), op.notation, use(value.operands[1], own + 1));
    return own < outer ? "(" + text + ")" : text;
}

std::string print(const Function& function) { return Printer(function).function(); }

std::string name(const Function& function, ValueId id) { return Printer(function).names()[id]; }

PerValue<std::string> names(const Function& function) { return Printer(function).names(); }

PerValue<std::optional<std::string>> statements(const Function& function) {
    const Printer printer(function);
    PerValue<std::optional<std::string>> all(function.values.size());
    for (ValueId id = 0; id < function.size(); ++id) all[id] = printer.statement(id);
    return all;
}

}  // namespace normjit::ir
