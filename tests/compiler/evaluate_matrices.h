// SPDX-License-Identifier: Apache-2.0
// Evaluates functions of the IR in double precision, one value after the other. Tests compare derived gradients with
// them.
#pragma once

#include "ir/ir.h"

#include <array>
#include <map>
#include <vector>

namespace normjit::test {

constexpr int M = 3, N = 4;

/// A value of a function, broadcast to [M,N].
using Matrix = std::array<double, M * N>;
using Inputs = std::map<Tensor, Matrix>;

/// Returns the values of a function. All operations that have a derivative are supported. It shares no code with the
/// product's evaluator.
std::vector<Matrix> evaluate(const ir::Function& function, const Inputs& inputs);

}  // namespace normjit::test
