// SPDX-License-Identifier: Apache-2.0
#include "ir/formula_text.h"

#include "ir/builder.h"
#include "ir/groups.h"
#include "ir/signature_parser.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

/// Stands for a missing tensor in an expression.
constexpr ValueId missing = -2;

constexpr std::string_view notations[] = {
#define OP(name, operands, result, notation, doc) notation,
#include "ir/ops.def"
};

/// True for parts of functions and of sums over the rows, which only passes make.
bool is_for_compiler(Op op) {
    constexpr Op parts[] = {Op::copysign,           Op::mantissa,        Op::exponent,    Op::ldexp,
                            Op::partial_accumulate, Op::partial_max_abs, Op::final_reduce};
    return std::ranges::find(parts, op) != std::end(parts);
}

/// Returns the names of the functions that a formula may call.
std::vector<std::string_view> functions() {
    std::vector<std::string_view> names = {row_sum};
    for (const std::string_view notation : notations) {
        const auto op = find_op(notation);
        if (op && !info(*op).infix() && !is_for_compiler(*op)) names.push_back(notation);
    }
    std::ranges::sort(names);
    return names;
}

class FormulaParser final : SignatureParser {
  public:
    using SignatureParser::SignatureParser;

    Expected<Function> function(Function header, const NumberOf& number, Named& values) {
        NORMJIT_RETURN_IF_ERROR(first_line());
        function_ = std::move(header);
        number_ = &number;
        declare_inputs();
        NORMJIT_RETURN_IF_ERROR(open_body());
        while (!at_end()) NORMJIT_RETURN_IF_ERROR(statement());
        NORMJIT_RETURN_IF_ERROR(find_outputs());
        for (const auto& [name, value] : names_) {
            if (value >= 0) values.emplace(name, value);
        }
        return std::move(function_);
    }

  private:
    void declare_inputs() {
        for (const Tensor number : all_tensors) {
            const auto& operand = function_.operands[number];
            if (!operand || operand->is_output) continue;
            function_.values.push_back(
                {.op = Op::input, .shape = shape_when_read(operand->shape), .tensor = number, .name = operand->name});
        }
        for (const Signature::Tensor& tensor : signature_.tensors) {
            if (tensor.is_output) continue;
            const auto found = std::ranges::find(function_.values, tensor.name, &Value::name);
            names_[tensor.name] =
                found == function_.values.end() ? missing : static_cast<ValueId>(found - function_.values.begin());
        }
    }

    Status statement() {
        NORMJIT_TRY(const Token name, word("name of a value expected"));
        NORMJIT_RETURN_IF_ERROR(check_name(name));
        NORMJIT_RETURN_IF_ERROR(expect('='));
        NORMJIT_TRY(const ValueId value, sum());
        NORMJIT_RETURN_IF_ERROR(define(name, value));
        const bool is_taken = std::ranges::find(function_.values, name.text, &Value::name) != function_.values.end();
        if (value >= 0 && !is_taken && function_[value].name.empty()) function_[value].name = name.text;
        if (!at_end() && !is_kind(Token::Kind::newline) && !is_symbol(';'))
            return error(fmt::format("'{}' is not expected here; allowed: + - * / or the end of the statement",
                                     text::shown(lexer_.peek().text)));
        skip_separators();
        return {};
    }

    Status find_outputs() {
        for (const Signature::Tensor& tensor : signature_.tensors) {
            if (!tensor.is_output) continue;
            const auto found = names_.find(tensor.name);
            if (found == names_.end()) return error(fmt::format("the output '{}' has no value", tensor.name));
            const auto number = function_.find(tensor.name);
            const bool is_asked_for = number && function_.operand(*number).is_output;
            if (found->second == missing) {
                if (!is_asked_for && tensor.is_optional) continue;
                return error(fmt::format("the output '{}' is computed from missing tensors only", tensor.name));
            }
            const Shape got = function_[found->second].shape, wanted = shape_of(tensor.axes);
            if (got != wanted)
                return error(
                    fmt::format("the output '{}' is {}; declared is {}", tensor.name, text(got), text(wanted)));
            if (!is_asked_for) continue;
            if (!tensor.axes.row && !is_late(found->second))
                return error(fmt::format("the output '{}' has no rows, so it must be computed from {}", tensor.name,
                                         tensor.axes.column ? "a col_sum" : "a max_abs"));
            if (const int64_t group = function_.operand(*number).group;
                group > 1 && (group != group_columns(function_) || !same_in_groups(function_)[found->second]))
                return error(
                    fmt::format("the output '{}' is not one for each {} columns; such a value is computed from "
                                "group_max(a, {}), [M] and numbers alone",
                                tensor.name, group, group));
            if (!tensor.axes.row && !tensor.axes.slice && is_per_slice(found->second))
                return error(fmt::format("the output '{}' differs among the slices; declare it as [S,N]", tensor.name));
            NORMJIT_TRY(const ValueId value, written(found->second));
            function_.outputs.push_back({*number, value});
        }
        return {};
    }

    /// Returns the value, or a copy of an input.
    Expected<ValueId> written(ValueId value) {
        if (function_[value].op != Op::input) return value;
        return add(lexer_.peek(), {.op = Op::like, .shape = function_[value].shape, .operands = {value, value}});
    }

    Expected<ValueId> find(const Token& name) override {
        if (names_.contains(name.text)) return names_[name.text];
        if (name.text == all_columns) return add(name, {.op = Op::constant, .constant = columns()});
        if (const auto number = (*number_)(name.text)) return add(name, {.op = Op::constant, .constant = *number});
        return error_at(name, fmt::format("'{}' is no tensor and no value before this; a number is given as {}=NUMBER",
                                          text::shown(name.text), text::shown(name.text)));
    }

    Expected<int> operands_of(const Token& function) const override {
        if (function.text == row_sum) return info(Op::row_mean).operands;
        const std::vector<std::string_view> allowed = functions();
        if (std::ranges::find(allowed, function.text) != allowed.end()) return ExpressionParser::operands_of(function);
        return error_at(function, fmt::format("unknown operation '{}'; allowed: {}{}", text::shown(function.text),
                                              text::join(allowed), text::did_you_mean(function.text, allowed)));
    }

    Expected<ValueId> apply(const Token& notation, ValueId a, ValueId b) override {
        if (a == missing || b == missing) return without(notation, a, b);
        NORMJIT_RETURN_IF_ERROR(check_operation(notation, a, b));
        NORMJIT_RETURN_IF_ERROR(check_late(notation, a, b));
        if (notation.text != row_sum) {
            NORMJIT_TRY(const ValueId value, ExpressionParser::apply(notation, a, b));
            const Op op = function_[value].op;
            if (op == Op::col_sum || op == Op::max_abs || is_late(a) || is_late(b)) late_.insert(value);
            return value;
        }
        Token mean = notation, times = notation;
        mean.text = info(Op::row_mean).notation;
        times.text = info(Op::mul).notation;
        NORMJIT_TRY(const ValueId row_mean, ExpressionParser::apply(mean, a, b));
        NORMJIT_TRY(const ValueId cols, add(notation, {.op = Op::constant, .constant = columns()}));
        return ExpressionParser::apply(times, row_mean, cols);
    }
    bool is_late(ValueId id) const { return late_.contains(id); }

    /// True if the value differs among the slices although it has no rows.
    bool is_per_slice(ValueId id) const {
        if (id == no_value) return false;
        const Value& value = function_[id];
        if (value.op == Op::col_sum) return false;  // as its output says
        if (value.op != Op::input) return is_per_slice(value.operands[0]) || is_per_slice(value.operands[1]);
        const auto declared = std::ranges::find(signature_.tensors, value.name, &Signature::Tensor::name);
        return declared != signature_.tensors.end() && declared->axes.is_per_slice();
    }

    /// A value that is known only after all rows may be used only in outputs without rows.
    Status check_late(const Token& notation, ValueId a, ValueId b) const {
        for (const auto& [late, other] : {std::pair(a, b), std::pair(b, a)}) {
            if (!is_late(late)) continue;
            if (function_[late].shape == Shape::scalar)
                return error_at(notation, "max_abs is known after all rows; it can only be an output");
            if (other != no_value && join(function_[other].shape, Shape::cols) != Shape::cols)
                return error_at(
                    notation, fmt::format("col_sum is known after all rows; it goes with [N] and numbers, not with {}",
                                          text(function_[other].shape)));
        }
        return {};
    }

    double columns() const { return static_cast<double>(function_.cols); }

    Status check_operation(const Token& notation, ValueId a, ValueId b) const {
        constexpr std::string_view reductions[] = {row_sum, "row_mean", "row_max", "col_sum", "max_abs"};
        const bool reduces = std::ranges::find(reductions, notation.text) != std::end(reductions);
        const bool is_of_columns =
            notation.text == info(Op::partner).notation || notation.text == info(Op::neighbour).notation;
        if (is_of_columns && !has_columns(function_[a].shape))
            return error_at(notation,
                            fmt::format("{} of {}; must have columns", notation.text, text(function_[a].shape)));
        if (notation.text == info(Op::group_max).notation && b != no_value) {
            const Status size = check_group_size(function_, a, b);
            if (!size.ok()) return error_at(notation, size.message());
        }
        if (reduces && function_[a].shape != Shape::matrix)
            return error_at(notation,
                            fmt::format("{} of {}; must be of [M,N]", notation.text, text(function_[a].shape)));
        return {};
    }

    bool is_scalar(ValueId id) const { return id >= 0 && function_[id].shape == Shape::scalar; }

    /// Returns the value of an operation of which an operand is missing.
    Expected<ValueId> without(const Token& notation, ValueId a, ValueId b) {
        const ValueId other = a == missing ? b : a;
        if (other == no_value || other == missing || is_scalar(other)) return missing;
        const char op = notation.text[0];
        if (notation.text.size() > 1) return missing;
        if (b == missing || op == '+' || op == '*') return other;
        NORMJIT_TRY(const ValueId start, add(notation, {.op = Op::constant, .constant = op == '/' ? 1.0 : 0.0}));
        return ExpressionParser::apply(notation, start, other);
    }

    const NumberOf* number_ = nullptr;
    std::set<ValueId> late_;  ///< values that are known after all rows
};

}  // namespace

Expected<Function> read_formula(std::string_view text, Function header, const NumberOf& number, Named& values) {
    return FormulaParser(text).function(std::move(header), number, values);
}

}  // namespace normjit::ir
