// SPDX-License-Identifier: Apache-2.0
#include "ir/formula_text.h"

#include "ir/arithmetic.h"
#include "ir/builder.h"
#include "ir/formula_functions.h"
#include "ir/groups.h"
#include "ir/signature_parser.h"
#include "support/contains.h"
#include "support/lasting.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

/// Stands for a missing tensor in an expression.
constexpr ValueId missing = -2;

/// A product of this many factors has a relative rounding error below a thousandth.
constexpr int largest_exponent = 1024;

std::vector<std::string_view> find_functions() {
    std::vector<std::string_view> names;
    for (const FormulaFunction& function : formula_functions()) names.push_back(function.name);
#define PART(...)
#define OP(name, operands, result, notation, doc) names.push_back(notation);
#include "ir/ops.def"
    std::erase_if(names, [](std::string_view name) { return name.size() < 2; });  // operators
    std::ranges::sort(names);
    return names;
}

/// Returns the names of the functions that a formula may call, sorted.
const std::vector<std::string_view>& functions() {
    static const auto& names = *lasting(find_functions());
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
        NORMJIT_TRY(const Token name, word("the name of a value"));
        NORMJIT_RETURN_IF_ERROR(check_name(name));
        NORMJIT_RETURN_IF_ERROR(expect('='));
        NORMJIT_TRY(const ValueId value, sum());
        NORMJIT_RETURN_IF_ERROR(define(name, value));
        statements_[name.text] = name;
        const bool is_taken = contains(function_.values, name.text, &Value::name);
        if (value >= 0 && !is_taken && function_[value].name.empty()) function_[value].name = name.text;
        if (!at_end() && !is_kind(Token::Kind::newline) && !is_symbol(';'))
            return operator_expected("the end of the statement");
        skip_separators();
        return {};
    }

    Status find_outputs() {
        const PerValue<bool> is_per_slice = find_per_slice();
        for (size_t i = 0; i < signature_.tensors.size(); ++i) {
            const Signature::Tensor& tensor = signature_.tensors[i];
            if (!tensor.is_output) continue;
            const auto found = names_.find(tensor.name);
            if (found == names_.end())
                return error_at(declared_[i], fmt::format("the output '{}' has no value", tensor.name));
            const auto wrong = [&](std::string_view what) {
                return error_at(statements_.at(tensor.name), fmt::format("the output '{}' {}", tensor.name, what));
            };
            const auto number = function_.find(tensor.name);
            const bool is_asked_for = number && function_.operand(*number).is_output;
            if (found->second == missing) {
                if (!is_asked_for && tensor.is_optional) continue;
                return wrong("needs tensors that are missing");
            }
            const Shape got = function_[found->second].shape, wanted = shape_of(tensor.axes);
            if (got != wanted) {
                std::string declared(text(wanted));
                if (!tensor.run.empty()) declared.insert(declared.size() - 1, "/" + tensor.run);
                return wrong(fmt::format("is {}; declared is {}",
                                         got == Shape::scalar ? "computed from numbers alone" : text(got), declared));
            }
            if (!is_asked_for) continue;
            if (!tensor.axes.row && !is_late(found->second))
                return wrong(fmt::format("has no rows, so it must be computed from {}",
                                         tensor.axes.column ? "a col_sum" : "a max_abs"));
            if (const int64_t group = function_.operand(*number).group;
                group > 1 && (group != group_columns(function_) || !same_in_groups(function_)[found->second]))
                return wrong(
                    fmt::format("is not one for each {} columns; such a value is computed from "
                                "group_max(a, {}), [M] and numbers alone",
                                group, group));
            if (!tensor.axes.row && !tensor.axes.slice && is_per_slice[found->second])
                return wrong("differs among the slices; declare it as [S,N]");
            NORMJIT_TRY(const ValueId value, written(found->second));
            function_.outputs.push_back({*number, value});
        }
        return {};
    }

    /// Returns the value, or a copy of it if it is an input.
    Expected<ValueId> written(ValueId value) {
        if (function_[value].op != Op::input) return value;
        return add(lexer_.peek(), {.op = Op::like, .shape = function_[value].shape, .operands = {value, value}});
    }

    Expected<ValueId> find(const Token& name) override {
        if (names_.contains(name.text)) return names_[name.text];
        if (name.text == all_columns) return add(name, {.op = Op::constant, .constant = columns()});
        if (const auto number = (*number_)(name.text)) return add(name, {.op = Op::constant, .constant = *number});
        return error_at(name,
                        fmt::format("'{}' is neither a tensor nor an earlier value; a number is given as {}=NUMBER",
                                    text::shown(name.text), text::shown(name.text)));
    }

    Expected<size_t> operands_of(const Token& function) const override {
        if (const auto found = find_formula_function(function.text)) return text::split(found->parameters, ' ').size();
        const std::vector<std::string_view>& allowed = functions();
        if (std::ranges::binary_search(allowed, function.text)) return ExpressionParser::operands_of(function);
        const std::string of_row = fmt::format("row_{}", function.text);
        const bool reduces = std::ranges::binary_search(allowed, std::string_view(of_row));
        return error_at(
            function, fmt::format("unknown operation '{}'; allowed: {}{}", text::shown(function.text),
                                  text::join(allowed), text::did_you_mean(reduces ? of_row : function.text, allowed)));
    }

    Expected<ValueId> apply(const Token& notation, ValueId a, ValueId b) override {
        if (a == missing || b == missing) return without(notation, a, b);
        NORMJIT_RETURN_IF_ERROR(check_operation(notation, a, b));
        NORMJIT_RETURN_IF_ERROR(check_late(notation, a, b));
        if (notation.text == "^") return raised(notation, a, b);
        NORMJIT_TRY(const ValueId value, ExpressionParser::apply(notation, a, b));
        const Op op = function_[value].op;
        if (op == Op::col_sum || op == Op::max_abs || is_late(a) || is_late(b)) late_.insert(value);
        return value;
    }

    /// Expands a function of functions.def: parses its text, in which the parameters stand for the operands.
    Expected<ValueId> call(const Token& name, std::span<const ValueId> operands) override {
        const auto function = find_formula_function(name.text);
        if (!function) return ExpressionParser::call(name, operands);
        if (contains(operands, missing)) return missing;
        NORMJIT_RETURN_IF_ERROR(check_operation(name, operands[0], no_value));
        const Lexer user = std::exchange(lexer_, Lexer(function->text, name));
        const auto names = std::exchange(names_, {});
        const std::vector<std::string_view> parameters = text::split(function->parameters, ' ');
        for (size_t i = 0; i < operands.size(); ++i) names_[parameters[i]] = operands[i];
        auto value = sum();
        lexer_ = user;
        names_ = names;
        return value;
    }

    /// Writes a ^ b: as a product if b is whole, as a product of roots if 2 * b is whole. For any other b, the power is
    /// split into a product for the whole part and an exponential for the rest, so that the gradient of a ^ 1.7 does
    /// not divide by a, which may be 0.
    Expected<ValueId> raised(const Token& at, ValueId a, ValueId b) {
        const auto exponent = number_of(b);
        if (!exponent)
            return error_at(at, "the exponent must be a number; exp(b * log(a)) is a to the power of a value");
        const double size = std::fabs(*exponent);
        const auto apply_to = [&](std::string_view notation, ValueId first, ValueId second = no_value) {
            Token operation = at;
            operation.text = notation;
            return apply(operation, first, second);
        };
        const auto number = [&](double value) { return add(at, {.op = Op::constant, .constant = value}); };
        if (!(size <= largest_exponent)) {
            return error_at(at, fmt::format("the exponent is {}; must be from -{} to {}", *exponent, largest_exponent,
                                            largest_exponent));
        }
        if (size * 2 != std::floor(size * 2)) {
            const double whole = std::max(std::floor(*exponent), 0.0);
            NORMJIT_TRY(const ValueId rest, whole > 0 ? number(*exponent - whole) : Expected<ValueId>(b));
            NORMJIT_TRY(const ValueId logarithm, apply_to("log", a));
            NORMJIT_TRY(const ValueId argument, apply_to("*", logarithm, rest));
            NORMJIT_TRY(const ValueId power, apply_to("exp", argument));
            if (whole == 0) return power;
            NORMJIT_TRY(const ValueId product, product_of(at, a, static_cast<int>(whole)));
            return apply_to("*", product, power);
        }
        NORMJIT_TRY(const ValueId one, number(1));
        if (size == 0) return apply_to("like", one, a);
        if (size != std::floor(size)) {
            NORMJIT_TRY(const ValueId root, apply_to(*exponent < 0 ? "rsqrt" : "sqrt", a));
            return product_of(at, root, static_cast<int>(size * 2));
        }
        NORMJIT_TRY(const ValueId product, product_of(at, a, static_cast<int>(size)));
        return *exponent < 0 ? apply_to("/", one, product) : Expected<ValueId>(product);
    }

    /// Returns the product of `count` equal factors, by repeated squaring.
    Expected<ValueId> product_of(Token at, ValueId factor, int count) {
        at.text = info(Op::mul).notation;
        ValueId product = no_value;
        for (;; count /= 2) {
            if (count % 2 != 0 && product == no_value) {
                product = factor;
            } else if (count % 2 != 0) {
                NORMJIT_TRY(product, apply(at, product, factor));
            }
            if (count == 1) return product;
            NORMJIT_TRY(factor, apply(at, factor, factor));
        }
    }

    /// Returns the value's number if it is computed from numbers alone.
    std::optional<double> number_of(ValueId id) {
        for (auto next = static_cast<ValueId>(numbers_.size()); next <= id; ++next) {
            const Value& value = function_[next];
            const auto [a, b] = value.operands;
            const auto known = [&](ValueId operand) {
                return operand == no_value || numbers_[static_cast<size_t>(operand)];
            };
            std::optional<double> number;
            if (value.op == Op::constant) {
                number = value.constant;
            } else if (a != no_value && known(a) && known(b)) {
                number = compute(value.op, *numbers_[static_cast<size_t>(a)],
                                 b == no_value ? 0 : *numbers_[static_cast<size_t>(b)]);
            }
            numbers_.push_back(number);
        }
        return numbers_[static_cast<size_t>(id)];
    }

    bool is_late(ValueId id) const { return late_.contains(id); }

    /// Marks the values that have no rows but differ from slice to slice. A sum over the rows is not marked: the axes
    /// of the output that reads it decide whether it runs over the rows of one slice or over all rows.
    PerValue<bool> find_per_slice() const {
        PerValue<bool> found(function_.values.size());
        for (ValueId id = 0; id < function_.size(); ++id) {
            const Value& value = function_[id];
            const auto declared = std::ranges::find(signature_.tensors, value.name, &Signature::Tensor::name);
            const bool is_declared = value.op == Op::input && declared != signature_.tensors.end();
            found[id] = is_declared && declared->axes.is_per_slice();
            if (value.op == Op::col_sum || value.op == Op::max_abs) continue;
            for (const ValueId operand : value.operands)
                found[id] = found[id] || (operand != no_value && found[operand]);
        }
        return found;
    }

    /// Checks that a value that is known only after all rows is used only in outputs without rows.
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
        constexpr std::string_view reductions[] = {"row_mean", "row_sum", "row_norm", "row_max",
                                                   "row_min",  "col_sum", "max_abs"};
        const bool reduces = contains(reductions, notation.text);
        constexpr std::string_view exchanges[] = {"partner", "rotate_half", "neighbour"};
        const bool is_of_columns = contains(exchanges, notation.text);
        if (is_of_columns && !has_columns(function_[a].shape))
            return error_at(notation,
                            fmt::format("{} of {}; must have columns", notation.text, text(function_[a].shape)));
        if (notation.text == info(Op::group_max).notation && b != no_value) {
            const Status size = check_group_size(function_, a, b);
            if (!size.ok()) return error_at(notation, size.message());
        }
        if (reduces && function_[a].shape != Shape::matrix)
            return error_at(notation, fmt::format("{} of {}; must be of [M,N], such as like(a, x)", notation.text,
                                                  text(function_[a].shape)));
        return {};
    }

    bool is_scalar(ValueId id) const { return id >= 0 && function_[id].shape == Shape::scalar; }

    /// Returns what is left of an operation when an operand is missing.
    Expected<ValueId> without(const Token& notation, ValueId a, ValueId b) {
        const ValueId other = a == missing ? b : a;
        if (other == no_value || other == missing || is_scalar(other)) return missing;
        const char op = notation.text[0];
        if (notation.text.size() > 1 || op == '^') return missing;
        if (b == missing || op == '+' || op == '*') return other;
        NORMJIT_TRY(const ValueId start, add(notation, {.op = Op::constant, .constant = op == '/' ? 1.0 : 0.0}));
        return ExpressionParser::apply(notation, start, other);
    }

    const NumberOf* number_ = nullptr;
    std::map<std::string_view, Token> statements_;  ///< where each value's name stands
    std::set<ValueId> late_;                        ///< values that are known after all rows
    std::vector<std::optional<double>> numbers_;    ///< by value: its number, if it is computed from numbers alone
};

}  // namespace

Expected<Function> read_formula(std::string_view text, Function header, const NumberOf& number, Named& values) {
    return FormulaParser(text).function(std::move(header), number, values);
}

}  // namespace normjit::ir
