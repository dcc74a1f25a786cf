// SPDX-License-Identifier: Apache-2.0
// The functions that formulas have in addition to the operations of the IR.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace normjit::ir {

struct FormulaFunction {
    std::string_view name;
    std::string_view parameters;  ///< names, separated by blanks
    std::string_view text;        ///< its definition, in terms of the parameters
};

std::span<const FormulaFunction> formula_functions();
/// Returns the function with this name; nothing if there is none.
std::optional<FormulaFunction> find_formula_function(std::string_view name);

}  // namespace normjit::ir
