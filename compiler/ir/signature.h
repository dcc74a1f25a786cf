// SPDX-License-Identifier: Apache-2.0
// The tensors that the first line of a formula declares, and the numbers that its body expects from the user.
#pragma once

#include "ir/ir.h"

#include "normjit/status.h"
#include "normjit/tensor.h"

#include <cstddef>
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
        std::string run = {};  ///< the divisor of the columns: "R" of [N/R], "128" of [M,N/128]; empty for [N]
    };
    /// A word of the body for which the user gives a number.
    struct Number {
        std::string name;
        Place place;  ///< where the word first stands
    };
    std::string name;
    std::vector<Tensor> tensors;  ///< inputs, then outputs
    std::vector<Number> numbers;
    std::string line;  ///< the whole formula in one line, without needless blanks
    size_t bytes = 0;  ///< the length of the text, up to the closing brace
};

/// Reads the formula at the beginning of the text. Fails with a position if its first line is wrong, or if a name is
/// one of `reserved`.
Expected<Signature> read_signature(std::string_view text, const std::vector<std::string_view>& reserved);

}  // namespace normjit::ir
