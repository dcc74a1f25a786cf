// SPDX-License-Identifier: Apache-2.0
#include "formula_program.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace normjit::reference {

namespace {

constexpr int missing = -1;

Kind kind_of(const std::string& what) {
    static const std::map<std::string, Kind> kinds = {
        {"tensor", Kind::tensor},
        {"number", Kind::number},
        {"+", Kind::add},
        {"-", Kind::subtract},
        {"*", Kind::multiply},
        {"/", Kind::divide},
        {"div_or_zero", Kind::div_or_zero},
        {"min", Kind::min},
        {"max", Kind::max},
        {"compare", Kind::compare},
        {"like", Kind::like},
        {"partner", Kind::partner},
        {"rotate_half", Kind::rotate_half},
        {"neighbour", Kind::neighbour},
        {"round", Kind::round},
        {"round_bf16", Kind::round_bf16},
        {"round_f16", Kind::round_f16},
        {"round_e8m0", Kind::round_e8m0},
        {"row_mean", Kind::row_mean},
        {"row_max", Kind::row_max},
        {"group_max", Kind::group_max},
        {"detach", Kind::detach},
        {"pow", Kind::power},
        {"where", Kind::where},
        {"col_sum", Kind::reduced},
        {"max_abs", Kind::reduced},
    };
    const auto found = kinds.find(what);
    return found == kinds.end() ? Kind::function : found->second;
}

class TextReader {
  public:
    TextReader(const Spec& spec, FormulaProgram& program) : spec_(spec), program_(program), text_(spec.formula->text) {
        const Formula& formula = *spec.formula;
        for (const Tensor tensor : all_tensors) {
            if (!formula.tensors[tensor] || formula.tensors[tensor]->is_output) continue;
            tensors_[formula.tensors[tensor]->name] = tensor;
        }
    }

    void read() {
        word();  // norm
        word();  // its name
        accept('(');
        do {
            input(name_of_tensor());
        } while (accept(','));
        accept(')');
        accept('-');
        accept('>');
        do {
            name_of_tensor();
        } while (accept(','));
        in_body_ = true;
        while (accept('\n')) {
        }
        accept('{');
        while (next_ < text_.size() && at() != '}') statement();
    }

  private:
    char at() {
        skip();
        return next_ < text_.size() ? text_[next_] : '\0';
    }
    /// Skips blanks and comments, and line ends before the body.
    void skip() {
        while (next_ < text_.size()) {
            const char c = text_[next_];
            if (c == '#') {
                next_ = std::min(text_.find('\n', next_), text_.size());
            } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && (!in_body_ || depth_ > 0))) {
                ++next_;
            } else {
                return;
            }
        }
    }
    bool accept(char c) {
        if (at() != c) return false;
        ++next_;
        if (in_body_) depth_ += c == '(' ? 1 : c == ')' ? -1 : 0;
        return true;
    }
    std::string word() {
        skip();
        const size_t begin = next_;
        while (next_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[next_])) || text_[next_] == '_'))
            ++next_;
        return text_.substr(begin, next_ - begin);
    }

    /// Reads "gamma?[N]".
    std::string name_of_tensor() {
        std::string name = word();
        next_ = text_.find(']', next_) + 1;
        return name;
    }
    void input(const std::string& name) {
        names_[name] = missing;
        const auto tensor = tensors_.find(name);
        if (tensor == tensors_.end()) return;
        const bool has_cols = spec_.formula->tensors[tensor->second]->axes.column;
        names_[name] = program_.names[name] = add({"tensor", {}, has_cols, 0, tensor->second});
    }

    void statement() {
        while (accept('\n') || accept(';')) {
        }
        if (next_ >= text_.size() || at() == '}') return;
        const std::string name = word();
        accept('=');
        names_[name] = sum();
        if (names_[name] != missing) program_.names[name] = names_[name];
    }

    int sum() {
        int left = product();
        while (at() == '+' || at() == '-') {
            const std::string what(1, text_[next_++]);
            left = combine(what, left, product());
        }
        return left;
    }
    int product() {
        int left = signed_power();
        while (at() == '*' || at() == '/') {
            const std::string what(1, text_[next_++]);
            left = combine(what, left, signed_power());
        }
        return left;
    }
    int signed_power() {
        if (!accept('-')) return power();
        const int operand = power();
        return operand == missing ? missing : combine("*", number(-1), operand);
    }
    int power() {
        const int base = primary();
        if (!accept('^')) return base;
        const bool is_negative = accept('-');
        int exponent = primary();
        if (is_negative) exponent = combine("*", number(-1), exponent);
        if (base == missing || exponent == missing) return missing;
        return add({"pow", {base, exponent}, program_.operations[static_cast<size_t>(base)].has_cols});
    }

    int primary() {
        if (accept('(')) {
            const int inner = sum();
            accept(')');
            return inner;
        }
        if (std::isdigit(static_cast<unsigned char>(at())) || at() == '.' || begins_with_special_number()) {
            char* end = nullptr;
            const double value = std::strtod(text_.c_str() + next_, &end);
            next_ = static_cast<size_t>(end - text_.c_str());
            return number(value);
        }
        const std::string name = word();
        if (accept('(')) return call(name);
        if (name == "N") return number(static_cast<double>(spec_.cols));
        if (const auto found = names_.find(name); found != names_.end()) return found->second;
        for (const Formula::Number& each : spec_.formula->numbers) {
            if (each.name == name) return number(each.value);
        }
        std::abort();  // cannot happen, because the compiler accepted the text
    }

    /// True before infinity and NaN, which are words.
    bool begins_with_special_number() {
        const size_t begin = next_;
        const std::string name = word();
        next_ = begin;
        return name == "inf" || name == "nan";
    }

    int call(const std::string& name) {
        std::vector<int> operands;
        do {
            operands.push_back(sum());
        } while (accept(','));
        accept(')');
        if (std::find(operands.begin(), operands.end(), missing) != operands.end()) return missing;
        if (name == "clamp") return call_of("min", {call_of("max", {operands[0], operands[1]}), operands[2]});
        if (name == "square") return combine("*", operands[0], operands[0]);
        if (name == "row_min")
            return combine("*", number(-1), call_of("row_max", {combine("*", number(-1), operands[0])}));
        if (name == "row_sum")
            return combine("*", call_of("row_mean", operands), number(static_cast<double>(spec_.cols)));
        if (name == "row_norm") {
            const int squares = call_of("row_mean", {combine("*", operands[0], operands[0])});
            return call_of("sqrt_or_zero", {combine("*", squares, number(static_cast<double>(spec_.cols)))});
        }
        return call_of(name, operands);
    }
    int call_of(const std::string& name, const std::vector<int>& operands) {
        bool has_cols = false;
        for (const int operand : operands) has_cols |= program_.operations[static_cast<size_t>(operand)].has_cols;
        return add({name, operands, has_cols && name != "row_mean" && name != "row_max"});
    }

    int number(double value) { return add({"number", {}, false, value}); }
    int add(Operation operation) {
        operation.kind = kind_of(operation.what);
        program_.operations.push_back(std::move(operation));
        return static_cast<int>(program_.operations.size()) - 1;
    }
    bool is_number(int id) const {
        const Operation& operation = program_.operations[static_cast<size_t>(id)];
        if (operation.what == "number") return true;
        if (operation.operands.empty()) return false;
        for (const int operand : operation.operands) {
            if (!is_number(operand)) return false;
        }
        return true;
    }

    /// Leaves out a factor or addend that is missing.
    int combine(const std::string& what, int a, int b) {
        if (a != missing && b != missing) {
            const bool has_cols = program_.operations[static_cast<size_t>(a)].has_cols ||
                                  program_.operations[static_cast<size_t>(b)].has_cols;
            return add({what, {a, b}, has_cols});
        }
        const int other = a == missing ? b : a;
        if (other == missing || is_number(other)) return missing;
        if (b == missing || what == "+" || what == "*") return other;
        return combine(what, number(what == "/" ? 1 : 0), other);
    }

    const Spec& spec_;
    FormulaProgram& program_;
    const std::string text_;
    size_t next_ = 0;
    bool in_body_ = false;
    int depth_ = 0;  // the number of open parentheses
    std::map<std::string, Tensor> tensors_;
    std::map<std::string, int> names_;
};

}  // namespace

FormulaProgram::FormulaProgram(const Spec& spec) { TextReader(spec, *this).read(); }

}  // namespace normjit::reference
