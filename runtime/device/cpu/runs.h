// SPDX-License-Identifier: Apache-2.0
// Tensors [N/R], an element for each run of R columns. Code for a CPU sees [N]: inputs are spread into the workspace
// before the rows of a slice, and outputs are summed from [N] after the final reduce.
#pragma once

#include "normjit/operand.h"

#include <cstdint>

namespace normjit::cpu {

/// Writes each of the elements of an input `axes.run` times: `cols` elements.
void spread_runs(const Operand& input, const void* from, int64_t cols, void* to);

/// Sums each run of [begin, end), whole runs, and stores an output's elements, rounded once. `sums` are at column
/// `begin`, of the compute type; `to` is the slice's first element.
void sum_runs(const Operand& output, DType compute, const void* sums, int64_t begin, int64_t end, void* to);

}  // namespace normjit::cpu
