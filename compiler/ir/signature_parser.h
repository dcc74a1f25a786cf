// SPDX-License-Identifier: Apache-2.0
// Parses the first line of a formula, and finds the tensors and numbers that the user gives.
#pragma once

#include "ir/expression_parser.h"
#include "ir/signature.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::ir {

/// The name of the number of columns in a formula.
inline constexpr std::string_view all_columns = "N";

class SignatureParser : protected ExpressionParser {
  public:
    explicit SignatureParser(std::string_view text);

    /// Reads the first line and scans the body. No name may be one of `reserved`.
    Expected<Signature> signature(const std::vector<std::string_view>& reserved);

  protected:
    Status first_line();
    Status check_name(const Token& name) const;
    /// Skips everything before the first statement.
    Status open_body();
    bool at_end() const { return is_kind(Token::Kind::end) || (has_braces_ && is_symbol('}')); }
    void skip_separators();

    Signature signature_;
    std::vector<Token> declared_;  ///< where each tensor's name stands

  private:
    void skip_lines();
    void skip_lines_before(char symbol);
    Status tensors(bool are_outputs);
    Status axes_of(Signature::Tensor& tensor);
    Expected<std::string> run_of_columns();
    Status decide_slices();
    Status scan_body();
    Status end_statement(const Token& name, std::set<std::string_view>& known) const;
    bool is_run(std::string_view word) const;
    Status count_runs(std::set<std::string_view>& known);

    const std::string_view text_;
    std::vector<std::string_view> reserved_;
    bool has_braces_ = false;
};

}  // namespace normjit::ir
