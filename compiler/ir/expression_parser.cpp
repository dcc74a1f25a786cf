// SPDX-License-Identifier: Apache-2.0
#include "ir/expression_parser.h"

#include "ir/builder.h"
#include "support/text.h"
#include "support/try.h"

#include <charconv>
#include <type_traits>

#include <fmt/format.h>

namespace normjit::ir {

bool ExpressionParser::accept(char symbol) {
    if (!is_symbol(symbol)) return false;
    lexer_.next();
    return true;
}

Status ExpressionParser::error_at(const Token& token, std::string_view what) {
    return invalid_argument(fmt::format("{}{}", text(Place{token.line, token.column}), what));
}

Status ExpressionParser::expected_at(const Token& found, std::string_view what) {
    std::string is = fmt::format("'{}'", text::shown(found.text));
    if (found.kind == Token::Kind::end) is = "the end";
    if (found.kind == Token::Kind::newline) is = "the end of the line";
    return error_at(found, fmt::format("{} expected, not {}", what, is));
}

Status ExpressionParser::operator_expected(std::string_view or_else) const {
    const Status wrong = expected(fmt::format("+ - * / ^ or {}", or_else));
    const bool compares = is_symbol('<') || is_symbol('>') || is_symbol('=') || is_symbol('!');
    return compares ? invalid_argument(wrong.message() + "; compare(a, b) compares") : wrong;
}

Status ExpressionParser::expect(char symbol) {
    return accept(symbol) ? Status() : expected(fmt::format("'{}'", symbol));
}

Status ExpressionParser::expect_word(std::string_view word) {
    if (!is_word(word)) return expected(fmt::format("'{}'", word));
    lexer_.next();
    return {};
}

Status ExpressionParser::end_of_line() {
    if (is_kind(Token::Kind::end)) return {};
    if (!is_kind(Token::Kind::newline)) return expected("the end of the line");
    lexer_.next();
    return {};
}

template <class Number>
Status ExpressionParser::read_number(Number& out) {
    const Token token = lexer_.peek();
    const char* const all = token.text.data() + token.text.size();
    const auto [end, code] = std::from_chars(token.text.data(), all, out);
    if (!is_number()) return expected("a number");
    if (end != all && code == std::errc())
        return error(fmt::format("'{}' is not a number; numbers are decimal: 16, 0.5, 1e-5", text::shown(token.text)));
    constexpr std::string_view kind = std::is_floating_point_v<Number> ? "a double" : "an integer";
    if (code != std::errc()) return error(fmt::format("{} is beyond the range of {}", text::shown(token.text), kind));
    lexer_.next();
    return {};
}

Status ExpressionParser::number(int64_t& out) { return read_number(out); }
Status ExpressionParser::number(int& out) { return read_number(out); }
Status ExpressionParser::number(double& out) { return read_number(out); }

Expected<Token> ExpressionParser::word(std::string_view what) {
    const Token token = lexer_.next();
    if (token.kind != Token::Kind::word) return expected_at(token, what);
    return token;
}

template <class Operand>
Expected<ValueId> ExpressionParser::infix(std::string_view symbols, Operand operand) {
    NORMJIT_TRY(ValueId left, operand());
    while (is_kind(Token::Kind::symbol) && symbols.find(lexer_.peek().text[0]) != symbols.npos) {
        const Token symbol = lexer_.next();
        NORMJIT_TRY(const ValueId right, operand());
        NORMJIT_TRY(left, apply(symbol, left, right));
    }
    return left;
}

Expected<ValueId> ExpressionParser::sum() {
    return infix("+-", [this] { return product(); });
}

Expected<ValueId> ExpressionParser::product() {
    return infix("*/", [this] { return factor(); });
}

/// Parses the expression that follows an opening parenthesis.
Expected<ValueId> ExpressionParser::nested() {
    const Token at = lexer_.next();
    if (nesting_ == deepest_nesting)
        return error_at(at, fmt::format("more than {} nested parentheses", deepest_nesting));
    ++nesting_;
    NORMJIT_TRY(const ValueId inner, sum());
    --nesting_;
    return inner;
}

/// Parses an operand with its power and its sign: -a ^ 2 is -(a ^ 2).
Expected<ValueId> ExpressionParser::factor() {
    if (!is_symbol('-')) return power();
    const Token minus = lexer_.next();
    if (!is_number() && !is_kind(Token::Kind::word) && !is_symbol('(')) return expected("a value");
    const bool is_literal = is_number();
    NORMJIT_TRY(const ValueId operand, power());
    return negative(minus, operand, is_literal);
}

/// Parses a, or a ^ b, where b may have a sign.
Expected<ValueId> ExpressionParser::power() {
    NORMJIT_TRY(const ValueId base, primary());
    if (!is_symbol('^')) return base;
    const Token symbol = lexer_.next(), at = lexer_.peek();
    const bool is_negative = accept('-'), is_literal = is_number();
    NORMJIT_TRY(ValueId exponent, primary());
    if (is_negative) {
        NORMJIT_TRY(exponent, negative(at, exponent, is_literal));
    }
    if (is_symbol('^')) return error("'^' twice needs parentheses: (a ^ b) ^ c or a ^ (b ^ c)");
    return apply(symbol, base, exponent);
}

/// Negates an operand. If it is a number that was just read, the number changes its sign.
Expected<ValueId> ExpressionParser::negative(const Token& minus, ValueId operand, bool is_literal) {
    if (is_literal && operand == function_.size() - 1 && function_[operand].op == Op::constant) {
        function_[operand].constant = -function_[operand].constant;
        return operand;
    }
    Token times = minus;
    times.text = info(Op::mul).notation;
    NORMJIT_TRY(const ValueId minus_one, add(minus, {.op = Op::constant, .constant = -1}));
    return apply(times, minus_one, operand);
}

Expected<ValueId> ExpressionParser::primary() {
    if (is_symbol('(')) {
        NORMJIT_TRY(const ValueId inner, nested());
        if (!accept(')')) return operator_expected("')'");
        return inner;
    }
    if (is_number()) {
        const Token at = lexer_.peek();
        double value = 0;
        NORMJIT_RETURN_IF_ERROR(number(value));
        return add(at, {.op = Op::constant, .constant = value});
    }
    if (is_symbol('*')) return error("a value expected, not '*'; a ^ b is a raised to b");
    NORMJIT_TRY(const Token name, word("a value"));
    return is_symbol('(') ? call(name) : find(name);
}

/// Parses the operands of a function.
Expected<ValueId> ExpressionParser::call(const Token& name) {
    NORMJIT_TRY(const size_t count, operands_of(name));
    std::vector<ValueId> operands;
    do {
        NORMJIT_TRY(const ValueId operand, nested());
        operands.push_back(operand);
    } while (is_symbol(',') && operands.size() < count);
    if (is_symbol(',') || (is_symbol(')') && operands.size() < count)) {
        const bool is_extreme = name.text == "max" || name.text == "min";
        const std::string hint = is_extreme ? fmt::format("; row_{}(a) is that of a row's elements", name.text) : "";
        return error_at(name, fmt::format("{} takes {} operand{}{}", name.text, count, count == 1 ? "" : "s", hint));
    }
    if (!accept(')')) return operator_expected(operands.size() < count ? "','" : "')'");
    return call(name, operands);
}

Expected<ValueId> ExpressionParser::call(const Token& function, std::span<const ValueId> operands) {
    return apply(function, operands[0], operands.size() > 1 ? operands[1] : no_value);
}

Expected<size_t> ExpressionParser::operands_of(const Token& function) const {
    const auto op = find_op(function.text);
    if (op && !info(*op).infix()) return static_cast<size_t>(info(*op).operands);
    return error_at(function, fmt::format("unknown operation '{}'", text::shown(function.text)));
}

Expected<ValueId> ExpressionParser::apply(const Token& notation, ValueId a, ValueId b) {
    const auto op = find_op(notation.text);
    if (!op) return error_at(notation, fmt::format("unknown operation '{}'", text::shown(notation.text)));
    const Shape second = b == no_value ? function_[a].shape : function_[b].shape;
    return add(notation, {.op = *op, .shape = result_shape(*op, function_[a].shape, second), .operands = {a, b}});
}

Expected<ValueId> ExpressionParser::find(const Token& name) {
    const auto found = names_.find(name.text);
    if (found == names_.end()) return error_at(name, fmt::format("unknown value '{}'", name.text));
    return found->second;
}

Expected<ValueId> ExpressionParser::add(const Token& at, Value value) {
    if (function_.size() == most_values_) return error_at(at, fmt::format("more than {} values", most_values_));
    value.place = {at.line, at.column};
    function_.values.push_back(std::move(value));
    return function_.size() - 1;
}

Status ExpressionParser::define(const Token& name, ValueId value) {
    if (names_.emplace(name.text, value).second) return {};
    return error_at(name, fmt::format("'{}' is defined twice", name.text));
}

}  // namespace normjit::ir
