// SPDX-License-Identifier: Apache-2.0
// Parses expressions into the values of a function. One token of look-ahead; every error gives line and column.
#pragma once

#include "ir/ir.h"
#include "ir/lexer.h"

#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace normjit::ir {

/// True for the words that print() writes for infinity and NaN.
inline bool is_special_number(std::string_view word) { return word == "inf" || word == "nan"; }

/// The most parentheses that may be nested.
inline constexpr int deepest_nesting = 64;

class ExpressionParser {
  protected:
    ExpressionParser(std::string_view text, ValueId most_values) : lexer_(text), most_values_(most_values) {}
    ~ExpressionParser() = default;

    bool is_kind(Token::Kind kind) const { return lexer_.peek().kind == kind; }
    bool is_word(std::string_view text) const { return is_kind(Token::Kind::word) && lexer_.peek().text == text; }
    bool is_symbol(char c) const { return is_kind(Token::Kind::symbol) && lexer_.peek().text[0] == c; }
    bool is_number() const {
        const Token& token = lexer_.peek();
        return token.kind == Token::Kind::number || (token.kind == Token::Kind::word && is_special_number(token.text));
    }
    /// Skips the symbol; false if the next token is something else.
    bool accept(char symbol);

    static Status error_at(const Token& token, std::string_view what);
    static Status expected_at(const Token& found, std::string_view what);
    Status error(std::string_view what) const { return error_at(lexer_.peek(), what); }
    Status expected(std::string_view what) const { return expected_at(lexer_.peek(), what); }
    /// Returns the error for a token that cannot follow an operand.
    Status operator_expected(std::string_view or_else) const;
    Status expect(char symbol);
    Status expect_word(std::string_view word);
    Status end_of_line();
    Status number(int64_t& out);
    Status number(int& out);
    Status number(double& out);
    /// Parses a word. `what` says in the error what the word should have named.
    Expected<Token> word(std::string_view what);

    /// Parses an expression and appends its values. An expression that is only a name returns the value of that name.
    Expected<ValueId> sum();

    /// Returns the value with this name.
    virtual Expected<ValueId> find(const Token& name);
    /// Returns how many operands a function takes.
    virtual Expected<size_t> operands_of(const Token& function) const;
    /// Appends a call. The function must exist, and there must be as many operands as it takes.
    virtual Expected<ValueId> call(const Token& function, std::span<const ValueId> operands);
    /// Appends the value of an operation. For one operand, `b` is no_value.
    virtual Expected<ValueId> apply(const Token& notation, ValueId a, ValueId b);
    Expected<ValueId> add(const Token& at, Value value);
    /// Gives a value its name. Fails if another value has the name.
    Status define(const Token& name, ValueId value);

    Lexer lexer_;
    Function function_;
    std::map<std::string_view, ValueId> names_;

  private:
    struct Waiting;
    Expected<ValueId> operand(std::vector<Waiting>& waiting);
    Status nest();
    Status apply_tighter(std::vector<Waiting>& waiting, ValueId& value);
    Expected<bool> close(Waiting& opened, ValueId& value);
    Expected<ValueId> negative(const Token& minus, ValueId operand, bool is_literal);
    template <class Number>
    Status read_number(Number& out);

    const ValueId most_values_;
    int nesting_ = 0;
};

}  // namespace normjit::ir
