// SPDX-License-Identifier: Apache-2.0
#include "ir/formula_text.h"

#include "ir/builder.h"
#include "ir/expression_parser.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

constexpr size_t most_text = 64 << 10;
constexpr size_t longest_name = 40;

/// What an expression has in the place of a tensor that is missing.
constexpr ValueId missing = -2;

// Words of a formula that the IR does not have: the number of columns, and the sum of a row, its mean times their number.
constexpr std::string_view all_columns = "N", row_sum = "row_sum";

struct NamedAxes {
    std::string_view text;
    Axes axes;
};
constexpr NamedAxes all_axes[] = {
    {"[S,M,N]", {true, true, true}}, {"[M,N]", {false, true, true}}, {"[S,M]", {true, true, false}},
    {"[M]", {false, true, false}},   {"[S,N]", {true, false, true}}, {"[N]", {false, false, true}},
    {"[]", {false, false, false}},
};

/// People's formulas come nowhere near; gradients and functions as arithmetic have many times as many.
constexpr ValueId most_values = 1024;

class FormulaParser final : ExpressionParser {
  public:
    explicit FormulaParser(std::string_view text) : ExpressionParser(text, most_values), text_(text) {}

    Expected<Signature> signature(const std::vector<std::string_view>& reserved) {
        if (text_.size() > most_text) return invalid_argument(fmt::format("more than {} bytes", most_text));
        reserved_ = &reserved;
        NORMJIT_RETURN_IF_ERROR(first_line());
        NORMJIT_RETURN_IF_ERROR(scan_body());
        NORMJIT_RETURN_IF_ERROR(decide_slices());
        return std::move(signature_);
    }

    Expected<Function> function(Function header, const NumberOf& number, Named& values) {
        static const std::vector<std::string_view> none;
        reserved_ = &none;
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
    // The first line

    Status first_line() {
        skip_lines();
        NORMJIT_RETURN_IF_ERROR(expect_word("norm"));
        NORMJIT_TRY(const Token name, word("the name of the norm expected"));
        NORMJIT_RETURN_IF_ERROR(check_name(name));
        signature_.name = name.text;
        NORMJIT_RETURN_IF_ERROR(expect('('));
        NORMJIT_RETURN_IF_ERROR(tensors(false));
        NORMJIT_RETURN_IF_ERROR(expect(')'));
        skip_lines();
        NORMJIT_RETURN_IF_ERROR(expect('-'));
        NORMJIT_RETURN_IF_ERROR(expect('>'));
        return tensors(true);
    }

    Status check_name(const Token& name) const {
        if (name.text.size() > longest_name)
            return error_at(name, fmt::format("the name is longer than {} letters", longest_name));
        if (find_op(name.text) || name.text == row_sum || name.text == all_columns)
            return error_at(name, fmt::format("'{}' has a meaning in formulas", name.text));
        if (std::ranges::find(*reserved_, name.text) != reserved_->end())
            return error_at(name, fmt::format("'{}' is a key of specs", name.text));
        return {};
    }

    /// Parses "x[M,N], gamma?[N]".
    Status tensors(bool are_outputs) {
        do {
            skip_lines();
            const Token name = lexer_.next();
            if (name.kind != Token::Kind::word) return error_at(name, "name of a tensor expected");
            NORMJIT_RETURN_IF_ERROR(check_name(name));
            const bool is_optional = accept('?');
            Signature::Tensor tensor{std::string(name.text), {}, are_outputs, is_optional};
            NORMJIT_RETURN_IF_ERROR(axes_of(tensor));
            for (const Signature::Tensor& other : signature_.tensors) {
                if (other.name == name.text) return error_at(name, fmt::format("'{}' is declared twice", name.text));
            }
            if (signature_.tensors.size() == tensor_count)
                return error_at(name, fmt::format("more than {} tensors", tensor_count));
            signature_.tensors.push_back(std::move(tensor));
            declared_.push_back(name);
            skip_lines_before(',');
        } while (accept(','));
        return {};
    }

    Status axes_of(Signature::Tensor& tensor) {
        const Token at = lexer_.peek();
        NORMJIT_RETURN_IF_ERROR(expect('['));
        std::string found = "[";
        while (!is_symbol(']') && !is_symbol('/') && !is_kind(Token::Kind::newline) && !is_kind(Token::Kind::end))
            found += lexer_.next().text;
        if (accept('/')) {
            NORMJIT_TRY(tensor.run, run_of_columns());
        }
        NORMJIT_RETURN_IF_ERROR(expect(']'));
        found += "]";
        std::vector<std::string_view> allowed;
        for (const NamedAxes& each : all_axes) {
            allowed.push_back(each.text);
            if (each.text != found) continue;
            tensor.axes = each.axes;
            if (tensor.run.empty() || (each.axes.is_columns() && !tensor.is_output)) return {};
            return error_at(at,
                            fmt::format("{}: only inputs [N/{}] and [S,N/{}] have an element for each run of columns",
                                        found.insert(found.size() - 1, "/" + tensor.run), tensor.run, tensor.run));
        }
        return error_at(at, fmt::format("{} is none of the axes {}", text::shown(found), text::join(allowed)));
    }

    /// Parses the R of [N/R], or a number.
    Expected<std::string> run_of_columns() {
        const Token run = lexer_.next();
        if (run.kind == Token::Kind::number && run.text.find_first_not_of("0123456789") == run.text.npos)
            return std::string(run.text);
        if (run.kind != Token::Kind::word)
            return error_at(run, "the columns of a run expected: a whole number, or the name of one");
        NORMJIT_RETURN_IF_ERROR(check_name(run));
        return std::string(run.text);
    }

    /// Gives each slice its own rows if no tensor says slices. If one does, inputs [M,N] are the same for all slices.
    Status decide_slices() {
        auto& all = signature_.tensors;
        const bool has_slices =
            std::ranges::any_of(all, [](const Signature::Tensor& tensor) { return tensor.axes.slice; });
        for (size_t i = 0; i < all.size(); ++i) {
            Axes& axes = all[i].axes;
            if (!has_slices) axes.slice = axes.row;
            if (axes.slice || !axes.row || (axes.column && !all[i].is_output)) continue;
            return error_at(declared_[i], fmt::format("'{}' has rows, so beside tensors with S it needs S as well{}",
                                                      all[i].name, all[i].is_output ? "" : "; only [M,N] does not"));
        }
        return {};
    }

    // The body

    void skip_lines() {
        while (is_kind(Token::Kind::newline)) lexer_.next();
    }
    /// Passes over line ends if the symbol follows them.
    void skip_lines_before(char symbol) {
        const Lexer before = lexer_;
        skip_lines();
        if (!is_symbol(symbol)) lexer_ = before;
    }
    void skip_separators() {
        while (is_kind(Token::Kind::newline) || is_symbol(';')) lexer_.next();
    }

    Status open_body() {
        skip_lines_before('{');
        has_braces_ = accept('{');
        if (!has_braces_ && !is_kind(Token::Kind::newline)) return error("'{' or the end of the line expected");
        skip_separators();
        return {};
    }
    bool at_end() const { return is_kind(Token::Kind::end) || (has_braces_ && is_symbol('}')); }

    /// Finds the numbers that the user gives, and writes the formula in a line.
    Status scan_body() {
        std::set<std::string_view> known;
        for (const Signature::Tensor& tensor : signature_.tensors) known.insert(tensor.name);
        NORMJIT_RETURN_IF_ERROR(count_runs(known));
        std::string& line = signature_.line;
        line = header_line();
        NORMJIT_RETURN_IF_ERROR(open_body());
        line += " { ";
        for (bool begins = true; !at_end();) {
            const Token token = lexer_.next();
            if (token.kind == Token::Kind::newline || token.text == ";") {
                skip_separators();
                if (!at_end()) line += "; ";
                begins = true;
                continue;
            }
            append(line, token.text);
            if (token.kind == Token::Kind::word && begins) {
                if (is_run(token.text)) return error_at(token, fmt::format("'{}' is a number, of columns", token.text));
                known.insert(token.text);
            } else if (token.kind == Token::Kind::word && token.text != all_columns && !is_symbol('(') &&
                       known.insert(token.text).second) {
                NORMJIT_RETURN_IF_ERROR(check_name(token));
                signature_.numbers.emplace_back(token.text);
            }
            begins = false;
        }
        if (has_braces_ && is_kind(Token::Kind::end)) return error("'}' expected");
        signature_.bytes = has_braces_ ? lexer_.offset() + 1 : text_.size();
        line += " }";
        return {};
    }

    bool is_run(std::string_view word) const {
        return std::ranges::find(signature_.tensors, word, &Signature::Tensor::run) != signature_.tensors.end();
    }

    /// Makes the names of runs numbers that the user gives.
    Status count_runs(std::set<std::string_view>& known) {
        for (size_t i = 0; i < declared_.size(); ++i) {
            const std::string& run = signature_.tensors[i].run;
            const bool is_number = run.empty() || std::isdigit(static_cast<unsigned char>(run[0]));
            if (is_number || std::ranges::find(signature_.numbers, run) != signature_.numbers.end()) continue;
            if (!known.insert(run).second)
                return error_at(declared_[i], fmt::format("'{}' is a tensor; the columns of a run are a number", run));
            signature_.numbers.push_back(run);
        }
        return {};
    }

    static void append(std::string& line, std::string_view token) {
        const bool is_operator =
            token.size() == 1 && std::string_view("+-*/=").find(token[0]) != std::string_view::npos;
        if (is_operator) {
            line += fmt::format(" {} ", token);
        } else {
            line += token == "," ? ", " : token;
        }
    }

    std::string header_line() const {
        std::string lists[2];
        for (const Signature::Tensor& tensor : signature_.tensors) {
            std::string& list = lists[tensor.is_output ? 1 : 0];
            list += fmt::format("{}{}{}{}", list.empty() ? "" : ", ", tensor.name, tensor.is_optional ? "?" : "",
                                axes_text(tensor));
        }
        return fmt::format("norm {}({}) -> {}", signature_.name, lists[0], lists[1]);
    }

    static std::string axes_text(const Signature::Tensor& tensor) {
        std::string axes(std::ranges::find(all_axes, tensor.axes, &NamedAxes::axes)->text);
        return tensor.run.empty() ? axes : axes.insert(axes.size() - 1, "/" + tensor.run);
    }

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
            return error(fmt::format("'{}' is not expected here", text::shown(lexer_.peek().text)));
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
            if (!tensor.axes.row && !tensor.axes.slice && is_per_slice(found->second))
                return error(fmt::format("the output '{}' differs among the slices; declare it as [S,N]", tensor.name));
            if (function_[found->second].op == Op::input)
                return error(fmt::format("the output '{}' is the input '{}' itself", tensor.name,
                                         function_[found->second].name));
            function_.outputs.push_back({*number, found->second});
        }
        return {};
    }

    Expected<ValueId> find(const Token& name) override {
        if (names_.contains(name.text)) return names_[name.text];
        if (name.text == all_columns) return add(name, {.op = Op::constant, .constant = columns()});
        if (const auto number = (*number_)(name.text)) return add(name, {.op = Op::constant, .constant = *number});
        return error_at(name, fmt::format("'{}' is no tensor and no value before this; a number is given as {}=NUMBER",
                                          text::shown(name.text), text::shown(name.text)));
    }

    Expected<ValueId> apply(const Token& notation, ValueId a, ValueId b) override {
        if (a == missing || b == missing) return without(notation, a, b);
        NORMJIT_RETURN_IF_ERROR(check_operation(notation, a));
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

    /// What is known after all rows may only become part of an output without rows.
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

    Status check_operation(const Token& notation, ValueId a) const {
        constexpr std::string_view reductions[] = {row_sum, "row_mean", "row_max", "col_sum", "max_abs"};
        if (notation.text.starts_with("partial_") || notation.text == "final_reduce")
            return error_at(notation, fmt::format("'{}' is for the compiler; write col_sum or max_abs", notation.text));
        constexpr std::string_view parts[] = {"copysign", "mantissa", "exponent", "ldexp"};
        if (std::ranges::find(parts, notation.text) != std::end(parts))
            return error_at(notation, fmt::format("'{}' is for the compiler, a part of functions", notation.text));
        const bool reduces = std::ranges::find(reductions, notation.text) != std::end(reductions);
        const bool has_columns = join(function_[a].shape, Shape::cols) == function_[a].shape;
        if (notation.text == info(Op::partner).notation && !has_columns)
            return error_at(notation, fmt::format("partner of {}; must have columns", text(function_[a].shape)));
        if (reduces && function_[a].shape != Shape::matrix)
            return error_at(notation,
                            fmt::format("{} of {}; must be of [M,N]", notation.text, text(function_[a].shape)));
        return {};
    }

    bool is_number(ValueId id) const { return id >= 0 && function_[id].shape == Shape::scalar; }

    /// Returns the value of an operation of which an operand is missing.
    Expected<ValueId> without(const Token& notation, ValueId a, ValueId b) {
        const ValueId other = a == missing ? b : a;
        if (other == no_value || other == missing || is_number(other)) return missing;
        const char op = notation.text[0];
        if (notation.text.size() > 1) return missing;
        if (b == missing || op == '+' || op == '*') return other;
        NORMJIT_TRY(const ValueId start, add(notation, {.op = Op::constant, .constant = op == '/' ? 1.0 : 0.0}));
        return ExpressionParser::apply(notation, start, other);
    }

    const std::string_view text_;
    const std::vector<std::string_view>* reserved_ = nullptr;
    const NumberOf* number_ = nullptr;
    std::set<ValueId> late_;  ///< values that are known after all rows
    Signature signature_;
    std::vector<Token> declared_;  ///< where each tensor's name stands
    bool has_braces_ = false;
};

}  // namespace

Expected<Signature> read_signature(std::string_view text, const std::vector<std::string_view>& reserved) {
    return FormulaParser(text).signature(reserved);
}

Expected<Function> read_formula(std::string_view text, Function header, const NumberOf& number, Named& values) {
    return FormulaParser(text).function(std::move(header), number, values);
}

}  // namespace normjit::ir
