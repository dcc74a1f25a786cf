// SPDX-License-Identifier: Apache-2.0
// Reads the output of printer.cpp.
#include "ir/expression_parser.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::ir {

namespace {

/// Limits the recursion of the printer, which follows chains of values.
constexpr ValueId most_printed_values = 8192;

class Parser final : ExpressionParser {
  public:
    Parser(std::string_view text, const Operands& operands) : ExpressionParser(text, most_printed_values) {
        function_.operands = operands;
    }

    Expected<Function> function() {
        NORMJIT_RETURN_IF_ERROR(header());
        NORMJIT_RETURN_IF_ERROR(inputs());
        while (!is_word("out")) NORMJIT_RETURN_IF_ERROR(statement());
        NORMJIT_RETURN_IF_ERROR(outputs());
        NORMJIT_RETURN_IF_ERROR(verify(function_));
        return std::move(function_);
    }

  private:
    Status dtype(std::optional<DType>& out) {
        const Token token = lexer_.peek();
        out = parse_dtype(token.text);
        if (!out && token.text != "none") return expected("f32, bf16, f16, f64 or none");
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

    /// Parses "[M,N]", "[M]", "[N]" or "[]", or for an output "[M,N/128]".
    Status shape(Operand& operand) {
        const Token at = lexer_.peek();
        NORMJIT_RETURN_IF_ERROR(expect('['));
        std::string axes = "[";
        while (is_kind(Token::Kind::word) || is_symbol(',')) axes += lexer_.next().text;
        if (accept('/')) NORMJIT_RETURN_IF_ERROR(number(operand.group));
        NORMJIT_RETURN_IF_ERROR(expect(']'));
        axes += ']';
        for (const Shape each : {Shape::scalar, Shape::rows, Shape::cols, Shape::matrix}) {
            if (text(each) != axes) continue;
            operand.shape = each;
            if (operand.group == 1 || (operand.is_output && each == Shape::matrix)) return {};
        }
        return error_at(at, "[M,N], [M], [N] or [] expected");
    }

    /// Parses "x: bf16[M,N]".
    Expected<Tensor> typed_tensor(bool is_output) {
        NORMJIT_TRY(const Token name, word("the name of a tensor"));
        NORMJIT_RETURN_IF_ERROR(expect(':'));
        Operand read{.name = std::string(name.text), .shape = {}, .is_output = is_output};
        NORMJIT_RETURN_IF_ERROR(dtype(read.dtype));
        NORMJIT_RETURN_IF_ERROR(shape(read));
        const auto known = function_.find(name.text);
        if (known) {
            // An output that is added to has already been listed as an input.
            if (is_output) function_.operands[*known]->is_output = true;
            read.is_output = function_.operand(*known).is_output;
            const bool is_typed = function_.operand(*known).dtype.has_value();
            if (!is_typed) function_.operands[*known]->dtype = read.dtype;
            if (function_.operand(*known) == read) return *known;
            return error_at(name, fmt::format("'{}' has another type or shape elsewhere", name.text));
        }
        const auto tensor = free_number(function_.operands, name.text);
        if (!tensor) return error_at(name, fmt::format("more than {} tensors", tensor_count));
        function_.operands[*tensor] = std::move(read);
        return *tensor;
    }

    Status inputs() {
        NORMJIT_RETURN_IF_ERROR(expect_word("in"));
        while (is_kind(Token::Kind::word)) {
            const Token at = lexer_.peek();
            NORMJIT_TRY(const Tensor tensor, typed_tensor(false));
            const Shape shape = shape_when_read(function_.operand(tensor).shape);
            NORMJIT_TRY(const ValueId value,
                        add(at, {.op = Op::input, .shape = shape, .tensor = tensor, .name = std::string(at.text)}));
            NORMJIT_RETURN_IF_ERROR(define(at, value));
            accept(',');
        }
        return end_of_line();
    }

    Status statement() {
        NORMJIT_TRY(const Token name, word("the name of a value"));
        if (names_.contains(name.text)) return error_at(name, fmt::format("'{}' is defined twice", name.text));
        NORMJIT_RETURN_IF_ERROR(expect('='));
        const ValueId first = function_.size();
        NORMJIT_TRY(const ValueId value, sum());
        if (value < first) return error_at(name, "an operation expected after '='");
        function_[value].name = name.text;
        int sweep = -1;
        if (accept('@')) NORMJIT_RETURN_IF_ERROR(number(sweep));
        for (ValueId id = first; id < function_.size(); ++id) function_[id].sweep = sweep;
        NORMJIT_RETURN_IF_ERROR(define(name, value));
        return end_of_line();
    }

    Status outputs() {
        NORMJIT_RETURN_IF_ERROR(expect_word("out"));
        while (is_kind(Token::Kind::word)) {
            Token name = lexer_.peek();
            NORMJIT_TRY(const Tensor tensor, typed_tensor(true));
            if (accept('=')) {
                NORMJIT_TRY(name, word("a value"));
            }
            NORMJIT_TRY(const ValueId value, find(name));
            function_.outputs.push_back({tensor, value});
            accept(',');
        }
        return end_of_line();
    }
};

}  // namespace

std::optional<Tensor> free_number(const Operands& operands, std::string_view name) {
    const auto own = parse_tensor(name);
    if (own && !operands[*own]) return own;
    for (size_t i = tensor_count; i-- > 0;) {
        if (!operands.values[i]) return all_tensors[i];
    }
    return std::nullopt;
}

Expected<Function> parse(std::string_view text, const Operands& operands) { return Parser(text, operands).function(); }

}  // namespace normjit::ir
