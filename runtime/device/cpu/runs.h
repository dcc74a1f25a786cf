// SPDX-License-Identifier: Apache-2.0
// Tensors [N/R], with an element for each run of R columns. Code for a CPU knows only [N]: inputs are spread to N
// elements in the workspace before the rows of a slice, and outputs are summed from N elements after the final reduce.
#pragma once

#include "normjit/operand.h"

#include <cstdint>

namespace normjit::cpu {

/// Writes each element of an input `axes.run` times, `cols` elements in all.
void spread_runs(const Operand& input, const void* from, int64_t cols, void* to);

/// Sums each run in [begin, end), which contains only whole runs, and stores an output's elements, each rounded once.
/// `sums` begins at column `begin`, in the compute type; `to` is the first element of the slice.
void sum_runs(const Operand& output, DType compute, const void* sums, int64_t begin, int64_t end, void* to);

}  // namespace normjit::cpu
