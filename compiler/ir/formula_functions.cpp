// SPDX-License-Identifier: Apache-2.0
#include "ir/formula_functions.h"

#include <algorithm>

namespace normjit::ir {

namespace {

constexpr FormulaFunction all[] = {
#define FUNCTION(name, parameters, text, doc) {#name, parameters, text},
#include "ir/functions.def"
};

}  // namespace

std::span<const FormulaFunction> formula_functions() { return all; }

std::optional<FormulaFunction> find_formula_function(std::string_view name) {
    const auto found = std::ranges::find(all, name, &FormulaFunction::name);
    return found == std::end(all) ? std::nullopt : std::optional(*found);
}

}  // namespace normjit::ir
