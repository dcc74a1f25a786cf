// SPDX-License-Identifier: Apache-2.0
#include "ir/expression_parser.h"

#include "ir/builder.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
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

/// An operator, a sign, an open parenthesis or a function that waits for the operand after it.
struct ExpressionParser::Waiting {
    /// How tightly it binds the operand. A sign is between * and ^: -a ^ 2 is -(a ^ 2).
    enum Binding { open, sum, product, sign, power, sign_of_exponent };

    /// Returns `open` for a token that is not an operator between two operands.
    static Binding binding_of(const Token& token) {
        if (token.kind != Token::Kind::symbol) return open;
        switch (token.text[0]) {
            case '+':
            case '-': return sum;
            case '*':
            case '/': return product;
            case '^': return power;
            default: return open;
        }
    }

    Token at;
    Binding binding = open;
    ValueId left = no_value;             ///< the operator's first operand
    bool is_before_number = false;       ///< of a sign
    size_t count = 0;                    ///< how many operands the function takes; 0: a parenthesis
    std::vector<ValueId> operands = {};  ///< the function's operands so far
};

/// Parses by operator precedence. Operators that wait for an operand are in a list, not on the thread's stack, which
/// may be small.
Expected<ValueId> ExpressionParser::sum() {
    std::vector<Waiting> waiting;
    for (;;) {
        NORMJIT_TRY(ValueId value, operand(waiting));
        for (bool is_complete = true; is_complete;) {
            NORMJIT_RETURN_IF_ERROR(apply_tighter(waiting, value));
            const auto next = Waiting::binding_of(lexer_.peek());
            if (next == Waiting::open && waiting.empty()) return value;
            if (next == Waiting::open) {
                NORMJIT_TRY(is_complete, close(waiting.back(), value));
                if (is_complete) waiting.pop_back();
            } else {
                waiting.push_back({.at = lexer_.next(), .binding = next, .left = value});
                is_complete = false;
            }
        }
    }
}

/// Parses signs, parentheses and functions up to a number or a name, and returns the value of that.
Expected<ValueId> ExpressionParser::operand(std::vector<Waiting>& waiting) {
    for (;;) {
        const Token at = lexer_.peek();
        if (accept('-')) {
            if (!is_number() && !is_kind(Token::Kind::word) && !is_symbol('(')) return expected("a value");
            const bool is_exponent = !waiting.empty() && waiting.back().binding == Waiting::power;
            const auto sign = is_exponent ? Waiting::sign_of_exponent : Waiting::sign;
            waiting.push_back({.at = at, .binding = sign, .is_before_number = is_number()});
        } else if (is_symbol('(')) {
            NORMJIT_RETURN_IF_ERROR(nest());
            waiting.push_back({.at = at});
        } else if (is_number()) {
            double value = 0;
            NORMJIT_RETURN_IF_ERROR(number(value));
            return add(at, {.op = Op::constant, .constant = value});
        } else {
            if (is_symbol('*')) return error("a value expected, not '*'; a ^ b is a raised to b");
            NORMJIT_TRY(const Token name, word("a value"));
            if (!is_symbol('(')) return find(name);
            NORMJIT_TRY(const size_t count, operands_of(name));
            NORMJIT_RETURN_IF_ERROR(nest());
            waiting.push_back({.at = name, .count = count});
        }
    }
}

/// Skips an opening parenthesis.
Status ExpressionParser::nest() {
    const Token at = lexer_.next();
    if (nesting_ == deepest_nesting)
        return error_at(at, fmt::format("more than {} nested parentheses", deepest_nesting));
    ++nesting_;
    return {};
}

/// Applies the operators and signs to which the value belongs more tightly than to the next token.
Status ExpressionParser::apply_tighter(std::vector<Waiting>& waiting, ValueId& value) {
    const auto next = Waiting::binding_of(lexer_.peek());
    while (!waiting.empty() && waiting.back().binding >= std::max(next, Waiting::sum)) {
        const Waiting& last = waiting.back();
        if (last.binding == Waiting::power && next == Waiting::power)
            return error("'^' twice needs parentheses: (a ^ b) ^ c or a ^ (b ^ c)");
        NORMJIT_TRY(value, last.left == no_value ? negative(last.at, value, last.is_before_number)
                                                 : apply(last.at, last.left, value));
        waiting.pop_back();
    }
    return {};
}

/// Ends an operand of a parenthesis or a function. If it is the last, `value` becomes the value of the whole; otherwise
/// returns false.
Expected<bool> ExpressionParser::close(Waiting& opened, ValueId& value) {
    const Token& at = opened.at;
    const size_t count = opened.count;
    std::vector<ValueId>& operands = opened.operands;
    if (count > 0) operands.push_back(value);
    if (is_symbol(',') && operands.size() < count) {
        lexer_.next();
        return false;
    }
    if (count > 0 && (is_symbol(',') || (is_symbol(')') && operands.size() < count))) {
        const bool is_extreme = at.text == "max" || at.text == "min";
        const std::string hint = is_extreme ? fmt::format("; row_{}(a) is that of a row's elements", at.text) : "";
        return error_at(at, fmt::format("{} takes {} operand{}{}", at.text, count, count == 1 ? "" : "s", hint));
    }
    if (!accept(')')) return operator_expected(operands.size() < count ? "','" : "')'");
    --nesting_;
    if (count > 0) {
        NORMJIT_TRY(value, call(at, operands));
    }
    return true;
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
