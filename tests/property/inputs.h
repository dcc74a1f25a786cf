// SPDX-License-Identifier: Apache-2.0
// Elements for the inputs of a case. Each is a value of its tensor's type.
#pragma once

#include "case.h"

#include "normjit/tensor.h"

#include <vector>

namespace normjit::test {

/// The elements of each input, with packed rows; empty for tensors that a launch does not read. Most cases resemble
/// training: x and dy are normal with outliers and with means and scales of all sizes, gamma is near 1 with some zeros,
/// and statistics are as a forward pass saves them. One in five is nasty: exponents over the whole range, zeros of both
/// signs, denormals, constant rows.
using Inputs = PerTensor<std::vector<double>>;
Inputs random_inputs(const Case& a_case);

/// Counts the elements of a tensor of the case.
size_t elements(const Case& a_case, Tensor tensor);

/// Replaces every row by row 0, because a launch reads that row if the row stride is 0.
void repeat_first_row(std::vector<double>& matrix, int64_t cols);

}  // namespace normjit::test
