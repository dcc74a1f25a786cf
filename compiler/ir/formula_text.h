// SPDX-License-Identifier: Apache-2.0
// A formula as people write it:
//
//     norm gated_rmsnorm(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M] {
//         rstd = rsqrt(row_mean(x * x) + eps)
//         y    = x * rstd * gamma * silu(z)
//     }
//
// A statement ends at the end of the line or at a semicolon. A tensor with a ? may be missing: then a product leaves
// out the factor, a sum leaves out the addend, and a value that is computed only from missing tensors and numbers, or
// by a function with a missing operand, is missing as well. A word that names no tensor and no value is a number that
// the user of the formula gives.
#pragma once

#include "ir/ir.h"
#include "ir/signature.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace normjit::ir {

using NumberOf = std::function<std::optional<double>(std::string_view)>;
/// The values of a formula by name.
using Named = std::map<std::string, ValueId, std::less<>>;

/// Returns the formula's function. The header declares the columns and the tensors that are not missing, and `number`
/// returns the value of each number by its name. Inputs that only the header declares also become values of the
/// function. `values` gets the inputs and every named value. Errors give a position.
Expected<Function> read_formula(std::string_view text, Function header, const NumberOf& number, Named& values);

}  // namespace normjit::ir
