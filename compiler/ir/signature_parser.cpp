// SPDX-License-Identifier: Apache-2.0
#include "ir/signature_parser.h"

#include "support/contains.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

constexpr size_t most_text = 64 << 10;
constexpr size_t longest_name = 40;

/// Far more values than any formula that people write. Its gradient, with functions expanded to arithmetic, has several
/// times as many.
constexpr ValueId most_values = 1024;

struct NamedAxes {
    std::string_view text;
    Axes axes;
};
constexpr NamedAxes all_axes[] = {
    {"[S,M,N]", {true, true, true}}, {"[M,N]", {false, true, true}}, {"[S,M]", {true, true, false}},
    {"[M]", {false, true, false}},   {"[S,N]", {true, false, true}}, {"[N]", {false, false, true}},
    {"[]", {false, false, false}},
};

/// Appends a token. Adjacent words and numbers stay apart, so that a text that contains them is still refused.
void append(std::string& line, std::string_view token) {
    const auto may_go_on = [](char c) { return is_letter(c) || is_digit(c) || c == '.'; };
    const bool is_operator = token.size() == 1 && std::string_view("+-*/^=").find(token[0]) != std::string_view::npos;
    if (is_operator) {
        line += fmt::format(" {} ", token);
    } else {
        if (!line.empty() && may_go_on(line.back()) && may_go_on(token[0])) line += ' ';
        line += token == "," ? ", " : token;
    }
}

std::string axes_text(const Signature::Tensor& tensor) {
    std::string axes(std::ranges::find(all_axes, tensor.axes, &NamedAxes::axes)->text);
    return tensor.run.empty() ? axes : axes.insert(axes.size() - 1, "/" + tensor.run);
}

std::string header_line(const Signature& signature) {
    std::string lists[2];
    for (const Signature::Tensor& tensor : signature.tensors) {
        std::string& list = lists[tensor.is_output ? 1 : 0];
        list += fmt::format("{}{}{}{}", list.empty() ? "" : ", ", tensor.name, tensor.is_optional ? "?" : "",
                            axes_text(tensor));
    }
    return fmt::format("norm {}({}) -> {}", signature.name, lists[0], lists[1]);
}

}  // namespace

SignatureParser::SignatureParser(std::string_view text) : ExpressionParser(text, most_values), text_(text) {}

Expected<Signature> SignatureParser::signature(const std::vector<std::string_view>& reserved) {
    if (text_.size() > most_text) return invalid_argument(fmt::format("more than {} bytes", most_text));
    reserved_ = reserved;
    NORMJIT_RETURN_IF_ERROR(first_line());
    NORMJIT_RETURN_IF_ERROR(scan_body());
    NORMJIT_RETURN_IF_ERROR(decide_slices());
    return std::move(signature_);
}

Status SignatureParser::first_line() {
    skip_lines();
    NORMJIT_RETURN_IF_ERROR(expect_word("norm"));
    NORMJIT_TRY(const Token name, word("the name of the norm"));
    NORMJIT_RETURN_IF_ERROR(check_name(name));
    signature_.name = name.text;
    NORMJIT_RETURN_IF_ERROR(expect('('));
    NORMJIT_RETURN_IF_ERROR(tensors(false));
    if (!accept(')')) return expected("',' or ')'");
    skip_lines();
    if (!accept('-') || !accept('>')) return expected("'->'");
    return tensors(true);
}

Status SignatureParser::check_name(const Token& name) const {
    if (name.text.size() > longest_name)
        return error_at(name, fmt::format("the name is longer than {} letters", longest_name));
    if (find_op(name.text) || name.text == all_columns || is_special_number(name.text))
        return error_at(name, fmt::format("'{}' has a meaning in formulas", name.text));
    if (contains(reserved_, name.text))
        return error_at(
            name, fmt::format("'{}' is a key of specs; choose a name other than {}", name.text, text::join(reserved_)));
    return {};
}

/// Parses "x[M,N], gamma?[N]".
Status SignatureParser::tensors(bool are_outputs) {
    do {
        skip_lines();
        NORMJIT_TRY(const Token name, word("the name of a tensor"));
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

Status SignatureParser::axes_of(Signature::Tensor& tensor) {
    const Token at = lexer_.peek();
    NORMJIT_RETURN_IF_ERROR(expect('['));
    std::string found = "[", run;
    while (!is_symbol(']') && !is_symbol('/') && !is_kind(Token::Kind::newline) && !is_kind(Token::Kind::end))
        found += lexer_.next().text;
    if (accept('/')) {
        NORMJIT_TRY(tensor.run, run_of_columns());
        run = "/" + tensor.run;
    }
    NORMJIT_RETURN_IF_ERROR(expect(']'));
    found += "]";
    std::vector<std::string_view> allowed;
    for (const NamedAxes& each : all_axes) {
        allowed.push_back(each.text);
        if (each.text != found) continue;
        tensor.axes = each.axes;
        if (tensor.run.empty() || (tensor.is_output ? each.axes.is_matrix() : each.axes.is_columns())) return {};
        return error_at(at,
                        fmt::format("{0}: only inputs [N/{1}] and [S,N/{1}], and outputs [M,N/{1}] and [S,M,N/{1}], "
                                    "have an element for each run of columns",
                                    found.insert(found.size() - 1, run), tensor.run));
    }
    return error_at(at, fmt::format("{} is none of the axes {} {}", text::shown(found.insert(found.size() - 1, run)),
                                    text::join(allowed), tensor.is_output ? "[S,M,N/G] [M,N/G]" : "[S,N/R] [N/R]"));
}

/// Parses R in [N/R] or [M,N/R], or a number in its place.
Expected<std::string> SignatureParser::run_of_columns() {
    const Token run = lexer_.next();
    if (run.kind == Token::Kind::number && run.text.find_first_not_of("0123456789") == run.text.npos &&
        run.text.find_first_not_of('0') != run.text.npos)
        return std::string(run.text);
    if (run.kind != Token::Kind::word)
        return expected_at(run, "a whole number of columns above 0, or the name of one,");
    NORMJIT_RETURN_IF_ERROR(check_name(run));
    return std::string(run.text);
}

/// Gives each slice its own rows if no tensor mentions slices. If one does, all slices share the inputs [M,N].
Status SignatureParser::decide_slices() {
    auto& all = signature_.tensors;
    const bool has_slices = std::ranges::any_of(all, [](const Signature::Tensor& tensor) { return tensor.axes.slice; });
    for (size_t i = 0; i < all.size(); ++i) {
        Axes& axes = all[i].axes;
        if (!has_slices) axes.slice = axes.row;
        if (axes.slice || !axes.row || (axes.column && !all[i].is_output)) continue;
        return error_at(declared_[i], fmt::format("'{}' has rows, so with slices it needs S as well{}", all[i].name,
                                                  all[i].is_output ? "" : "; only [M,N] does not"));
    }
    return {};
}

void SignatureParser::skip_lines() {
    while (is_kind(Token::Kind::newline)) lexer_.next();
}
/// Skips line ends if the symbol follows them.
void SignatureParser::skip_lines_before(char symbol) {
    const Lexer before = lexer_;
    skip_lines();
    if (!is_symbol(symbol)) lexer_ = before;
}
void SignatureParser::skip_separators() {
    while (is_kind(Token::Kind::newline) || is_symbol(';')) lexer_.next();
}

Status SignatureParser::open_body() {
    skip_lines_before('{');
    has_braces_ = accept('{');
    if (!has_braces_ && !is_kind(Token::Kind::newline)) return expected("',', '{' or the end of the line");
    skip_separators();
    return {};
}

/// Finds the numbers that the user must give, and writes the formula on one line.
Status SignatureParser::scan_body() {
    std::set<std::string_view> known;
    std::set<std::string_view> outputs;
    for (const Signature::Tensor& tensor : signature_.tensors) (tensor.is_output ? outputs : known).insert(tensor.name);
    NORMJIT_RETURN_IF_ERROR(count_runs(known));
    std::string& line = signature_.line;
    line = header_line(signature_);
    NORMJIT_RETURN_IF_ERROR(open_body());
    line += " { ";
    Token defined;  // the value that the statement defines
    for (bool begins = true; !at_end();) {
        const Token token = lexer_.next();
        if (token.kind == Token::Kind::newline || token.text == ";") {
            NORMJIT_RETURN_IF_ERROR(end_statement(defined, known));
            skip_separators();
            if (!at_end()) line += "; ";
            begins = true;
            continue;
        }
        append(line, token.text);
        const bool is_assigned = token.kind == Token::Kind::word && !begins && is_symbol('=');
        if (is_assigned && has_braces_ && contains(reserved_, token.text))
            return error_at(token, fmt::format("'}}' expected, because the key '{}' follows", token.text));
        if (is_assigned) return error_at(token, "')', ';' or the end of the line expected, because '=' follows");
        if (token.kind == Token::Kind::word && begins) {
            if (is_run(token.text))
                return error_at(token, fmt::format("'{}' is a number of columns; no line can define it", token.text));
            defined = token;
        } else if (token.kind == Token::Kind::word && token.text != all_columns && !is_special_number(token.text) &&
                   !is_symbol('(') && known.insert(token.text).second) {
            NORMJIT_RETURN_IF_ERROR(check_name(token));
            if (outputs.contains(token.text))
                return error_at(token, fmt::format("'{}' is read before it has a value", token.text));
            signature_.numbers.push_back({std::string(token.text), {token.line, token.column}});
        }
        begins = false;
    }
    NORMJIT_RETURN_IF_ERROR(end_statement(defined, known));
    if (has_braces_ && is_kind(Token::Kind::end)) return expected("'}'");
    signature_.bytes = has_braces_ ? lexer_.offset() + 1 : text_.size();
    line += " }";
    return {};
}

/// Marks a value as known after its statement. Fails if the name was read before, because it was then taken for a
/// number.
Status SignatureParser::end_statement(const Token& name, std::set<std::string_view>& known) const {
    if (contains(signature_.numbers, name.text, &Signature::Number::name))
        return error_at(name, fmt::format("'{}' is read before it has a value", name.text));
    known.insert(name.text);
    return {};
}

bool SignatureParser::is_run(std::string_view word) const {
    return contains(signature_.tensors, word, &Signature::Tensor::run);
}

/// Adds the names of run lengths, such as R in [N/R], to the numbers that the user gives.
Status SignatureParser::count_runs(std::set<std::string_view>& known) {
    for (size_t i = 0; i < declared_.size(); ++i) {
        const std::string& run = signature_.tensors[i].run;
        const bool is_number = run.empty() || is_digit(run[0]);
        if (is_number || contains(signature_.numbers, run, &Signature::Number::name)) continue;
        if (!known.insert(run).second)
            return error_at(declared_[i], fmt::format("'{}' is a tensor; the columns of a run are a number", run));
        signature_.numbers.push_back({run, {declared_[i].line, declared_[i].column}});
    }
    return {};
}

Expected<Signature> read_signature(std::string_view text, const std::vector<std::string_view>& reserved) {
    return SignatureParser(text).signature(reserved);
}

}  // namespace normjit::ir
