// SPDX-License-Identifier: Apache-2.0
// The operations of a formula's text in their order. They are read without the compiler's parser.
#pragma once

#include "normjit/spec.h"

#include <map>
#include <string>
#include <vector>

namespace normjit::reference {

enum class Kind {
    tensor,
    number,
    add,
    subtract,
    multiply,
    divide,
    div_or_zero,
    min,
    max,
    compare,
    like,
    partner,
    rotate_half,
    neighbour,
    round,
    round_bf16,
    round_f16,
    round_e8m0,
    row_mean,
    row_max,
    group_max,
    detach,
    power,
    where,
    reduced,
    function
};

struct Operation {
    std::string what;  ///< "tensor", "number", or the formula's own word: "+", "row_mean", "exp"
    std::vector<int> operands;
    bool has_cols = false;  ///< it differs from column to column
    double number = 0;
    Tensor tensor = Tensor::x;
    Kind kind = Kind::function;
};

struct FormulaProgram {
    std::vector<Operation> operations;
    std::map<std::string, int> names;  ///< names of tensors and values that are not missing

    /// Reads the formula of a spec that the compiler accepted.
    explicit FormulaProgram(const Spec& spec);
};

}  // namespace normjit::reference
