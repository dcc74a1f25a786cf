// SPDX-License-Identifier: Apache-2.0
// Reads the output of printer.cpp. One token of look-ahead; every error gives line and column.
#include "ir/builder.h"
#include "ir/ir.h"
#include "support/try.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

/// Limits that no formula comes near. Texts also come from files, and parser and printer recurse.
constexpr int deepest_nesting = 64;
constexpr ValueId most_values = 1024;

struct Token {
    enum class Kind { word, number, symbol, newline, end } kind = Kind::end;
    std::string_view text;
    int line = 1;
    int column = 1;
};

class Lexer {
  public:
    explicit Lexer(std::string_view text) : text_(text) { next(); }

    const Token& peek() const { return token_; }

    Token next() {
        const Token current = token_;
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
        token_ = {Token::Kind::end, {}, line_, static_cast<int>(at_ - line_start_) + 1};
        if (at_ == text_.size()) return current;
        const size_t begin = at_;
        const char c = text_[at_++];
        if (c == '\n') {
            token_.kind = Token::Kind::newline;
            ++line_;
            line_start_ = at_;
        } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
            token_.kind = Token::Kind::word;
            while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
                ++at_;
        } else if (std::isdigit(static_cast<unsigned char>(c))) {
            token_.kind = Token::Kind::number;
            double ignored = 0;
            at_ = static_cast<size_t>(std::from_chars(text_.data() + begin, text_.data() + text_.size(), ignored).ptr -
                                      text_.data());
        } else {
            token_.kind = Token::Kind::symbol;
        }
        token_.text = text_.substr(begin, at_ - begin);
        return current;
    }

  private:
    std::string_view text_;
    size_t at_ = 0;
    size_t line_start_ = 0;
    int line_ = 1;
    Token token_;
};

class Parser {
  public:
    explicit Parser(std::string_view text) : lexer_(text) {}

    Expected<Function> function() {
        NORMJIT_RETURN_IF_ERROR(header());
        NORMJIT_RETURN_IF_ERROR(inputs());
        while (!is_word("out")) NORMJIT_RETURN_IF_ERROR(statement());
        NORMJIT_RETURN_IF_ERROR(outputs());
        NORMJIT_RETURN_IF_ERROR(verify(function_));
        return std::move(function_);
    }

  private:
    bool is_word(std::string_view text) const {
        return lexer_.peek().kind == Token::Kind::word && lexer_.peek().text == text;
    }
    bool is_symbol(char c) const { return lexer_.peek().kind == Token::Kind::symbol && lexer_.peek().text[0] == c; }

    static Status error_at(const Token& token, std::string_view what) {
        return invalid_argument(fmt::format("line {}, column {}: {}", token.line, token.column, what));
    }
    Status error(std::string_view what) const { return error_at(lexer_.peek(), what); }

    Status expect(char symbol) {
        if (!is_symbol(symbol)) return error(fmt::format("'{}' expected", symbol));
        lexer_.next();
        return {};
    }
    Status expect_word(std::string_view word) {
        if (!is_word(word)) return error(fmt::format("'{}' expected", word));
        lexer_.next();
        return {};
    }
    Status end_of_line() {
        if (lexer_.peek().kind == Token::Kind::end) return {};
        if (lexer_.peek().kind != Token::Kind::newline) return error("end of line expected");
        lexer_.next();
        return {};
    }

    template <class Number>
    Status number(Number& out) {
        const Token token = lexer_.peek();
        const auto [end, code] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), out);
        if (token.kind != Token::Kind::number || code != std::errc() || end != token.text.data() + token.text.size()) {
            return error("number expected");
        }
        lexer_.next();
        return {};
    }

    Status dtype(std::optional<DType>& out) {
        const Token token = lexer_.peek();
        out = parse_dtype(token.text);
        if (!out && token.text != "none") return error("f32, bf16, f16, f64 or none expected");
        lexer_.next();
        return {};
    }

    Status header() {
        NORMJIT_RETURN_IF_ERROR(expect_word("norm"));
        NORMJIT_RETURN_IF_ERROR(expect_word("cols"));
        NORMJIT_RETURN_IF_ERROR(expect('='));
        NORMJIT_RETURN_IF_ERROR(number(function_.cols));
        NORMJIT_RETURN_IF_ERROR(expect_word("compute"));
        NORMJIT_RETURN_IF_ERROR(expect('='));
        std::optional<DType> compute;
        NORMJIT_RETURN_IF_ERROR(dtype(compute));
        function_.compute = compute.value_or(DType::f32);
        return end_of_line();
    }

    /// Parses "x: bf16[M,N]".
    Expected<Tensor> typed_tensor() {
        const Token token = lexer_.peek();
        const auto tensor = parse_tensor(token.text);
        if (!tensor) return error("name of a tensor expected");
        lexer_.next();
        NORMJIT_RETURN_IF_ERROR(expect(':'));
        NORMJIT_RETURN_IF_ERROR(dtype(function_.dtypes[*tensor]));
        for (const char c : text(shape_of(*tensor))) {
            if (c == '[' || c == ',' || c == ']') {
                NORMJIT_RETURN_IF_ERROR(expect(c));
            } else {
                NORMJIT_RETURN_IF_ERROR(expect_word(std::string_view(&c, 1)));
            }
        }
        return *tensor;
    }

    Status inputs() {
        NORMJIT_RETURN_IF_ERROR(expect_word("in"));
        while (lexer_.peek().kind == Token::Kind::word) {
            const Token at = lexer_.peek();
            NORMJIT_TRY(const Tensor tensor, typed_tensor());
            if (!may_be_read(tensor) && !may_be_accumulated(tensor)) return error_at(at, "an output cannot be read");
            const Shape shape = shape_of(tensor);
            const std::string name(at.text);
            NORMJIT_TRY(const ValueId value,
                        add(at, {.op = Op::input, .shape = shape, .tensor = tensor, .name = name}));
            define(at.text, value);
            if (is_symbol(',')) lexer_.next();
        }
        return end_of_line();
    }

    Status statement() {
        NORMJIT_TRY(const Token name, word("name of a value expected"));
        if (names_.contains(name.text)) return error_at(name, fmt::format("'{}' is defined twice", name.text));
        NORMJIT_RETURN_IF_ERROR(expect('='));
        const ValueId first = function_.size();
        NORMJIT_TRY(const ValueId value, sum());
        if (value < first) return error_at(name, "an operation expected after '='");
        function_[value].name = name.text;
        int sweep = -1;
        if (is_symbol('@')) {
            lexer_.next();
            NORMJIT_RETURN_IF_ERROR(number(sweep));
        }
        for (ValueId id = first; id < function_.size(); ++id) function_[id].sweep = sweep;
        define(name.text, value);
        return end_of_line();
    }

    Status outputs() {
        NORMJIT_RETURN_IF_ERROR(expect_word("out"));
        while (lexer_.peek().kind == Token::Kind::word) {
            const Token at = lexer_.peek();
            NORMJIT_TRY(const Tensor tensor, typed_tensor());
            if (!may_be_written(tensor)) return error_at(at, "an input cannot be written");
            Token name = at;
            if (is_symbol('=')) {
                lexer_.next();
                NORMJIT_TRY(name, word("a value expected"));
            }
            NORMJIT_TRY(const ValueId value, find(name));
            function_.outputs.push_back({tensor, value});
            if (is_symbol(',')) lexer_.next();
        }
        return end_of_line();
    }

    Expected<ValueId> sum() {
        return infix("+-", [this] { return product(); });
    }
    Expected<ValueId> product() {
        return infix("*/", [this] { return primary(); });
    }

    template <class Operand>
    Expected<ValueId> infix(std::string_view symbols, Operand operand) {
        NORMJIT_TRY(ValueId left, operand());
        while (lexer_.peek().kind == Token::Kind::symbol && symbols.find(lexer_.peek().text[0]) != symbols.npos) {
            const Token symbol = lexer_.next();
            NORMJIT_TRY(const ValueId right, operand());
            NORMJIT_TRY(left, apply(symbol, left, right));
        }
        return left;
    }

    /// Parses what follows an opening parenthesis.
    Expected<ValueId> nested() {
        const Token at = lexer_.next();
        if (nesting_ == deepest_nesting) {
            return error_at(at, fmt::format("more than {} parentheses inside one another", deepest_nesting));
        }
        ++nesting_;
        NORMJIT_TRY(const ValueId inner, sum());
        --nesting_;
        return inner;
    }

    Expected<ValueId> primary() {
        if (is_symbol('(')) {
            NORMJIT_TRY(const ValueId inner, nested());
            NORMJIT_RETURN_IF_ERROR(expect(')'));
            return inner;
        }
        const Token at = lexer_.peek();
        const bool negative = is_symbol('-');
        if (negative) lexer_.next();
        if (negative || lexer_.peek().kind == Token::Kind::number) {
            double value = 0;
            NORMJIT_RETURN_IF_ERROR(number(value));
            return add(at, {.op = Op::constant, .constant = negative ? -value : value});
        }
        NORMJIT_TRY(const Token name, word("a value expected"));
        if (!is_symbol('(')) return find(name);
        NORMJIT_TRY(const ValueId first, nested());
        ValueId second = no_value;
        if (is_symbol(',')) {
            NORMJIT_TRY(second, nested());
        }
        NORMJIT_RETURN_IF_ERROR(expect(')'));
        return apply(name, first, second);
    }

    Expected<ValueId> apply(const Token& notation, ValueId a, ValueId b) {
        for (int i = 0; i <= static_cast<int>(Op::final_reduce); ++i) {
            const OpInfo& op = info(static_cast<Op>(i));
            if (op.notation != notation.text) continue;
            if ((op.operands == 2) != (b != no_value)) {
                return error_at(notation, fmt::format("{} takes {} operand(s)", op.name, op.operands));
            }
            const Shape second = b == no_value ? function_[a].shape : function_[b].shape;
            const Shape shape = result_shape(static_cast<Op>(i), function_[a].shape, second);
            return add(notation, {.op = static_cast<Op>(i), .shape = shape, .operands = {a, b}});
        }
        return error_at(notation, fmt::format("unknown operation '{}'", notation.text));
    }

    Expected<Token> word(std::string_view otherwise) {
        const Token token = lexer_.next();
        if (token.kind != Token::Kind::word) return error_at(token, otherwise);
        return token;
    }

    Expected<ValueId> find(const Token& name) const {
        const auto found = names_.find(name.text);
        if (found == names_.end()) return error_at(name, fmt::format("unknown value '{}'", name.text));
        return found->second;
    }

    Expected<ValueId> add(const Token& at, Value value) {
        if (function_.size() == most_values) return error_at(at, fmt::format("more than {} values", most_values));
        function_.values.push_back(std::move(value));
        return function_.size() - 1;
    }
    void define(std::string_view name, ValueId value) { names_[name] = value; }

    Lexer lexer_;
    Function function_;
    std::map<std::string_view, ValueId> names_;
    int nesting_ = 0;
};

}  // namespace

Expected<Function> parse(std::string_view text) { return Parser(text).function(); }

}  // namespace normjit::ir
