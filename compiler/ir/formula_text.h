// SPDX-License-Identifier: Apache-2.0
// A formula as people write it:
//
//     norm gated_rmsnorm(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M] {
//         rstd = rsqrt(row_mean(x * x) + eps)
//         y    = x * rstd * gamma * silu(z)
//     }
//
// Statements end where the line ends, or at a semicolon. A tensor with a ? may be missing: then a product leaves its
// factor out, a sum its addend, and what is computed from it and numbers alone is missing as well. A word that names
// no tensor and no value is a number that the user of the formula gives.
#pragma once

#include "ir/ir.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::ir {

struct Signature {
    struct Tensor {
        std::string name;
        Axes axes;
        bool is_output = false;
        bool is_optional = false;
        std::string run = {};  ///< what divides the columns: "R" of [N/R], "128" of [N/128]; empty for [N]
    };
    std::string name;
    std::vector<Tensor> tensors;       ///< inputs, then outputs
    std::vector<std::string> numbers;  ///< words of the body that the user gives
    std::string line;                  ///< the whole formula in one line, without needless blanks
    size_t bytes = 0;                  ///< of the text, up to the closing brace
};

/// Reads the formula that the text begins with. Fails with a position if its first line is wrong, or a name is one of
/// `reserved`.
Expected<Signature> read_signature(std::string_view text, const std::vector<std::string_view>& reserved);

using NumberOf = std::function<std::optional<double>(std::string_view)>;
/// The values of a formula by name.
using Named = std::map<std::string, ValueId, std::less<>>;

/// Returns the formula's function. The header declares the tensors that are not missing and the columns, and `number`
/// gives the numbers. Inputs that only the header declares are values of the function too. `values` gets the inputs and
/// every named value. Fails with a position.
Expected<Function> read_formula(std::string_view text, Function header, const NumberOf& number, Named& values);

}  // namespace normjit::ir
