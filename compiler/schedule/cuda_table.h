// SPDX-License-Identifier: Apache-2.0
// CUDA schedules that were fastest, by the vectors of a row. Shares are of the ceiling, a stream that reads two arrays
// and writes one, in the same run; 32768 rows, bf16, H200, 2026-11-21: some 3,000 schedules, and 9,000 of the tuner's.
#pragma once

#include "plan/cuda.h"
#include "support/divide.h"

namespace normjit::schedule {

inline int whole_warps(int64_t threads) { return static_cast<int>(round_up(threads, 32)); }

/// What the rules decide by.
struct CudaShape {
    int width = 1;              ///< elements of a vector
    int64_t vectors = 0;        ///< of a row
    bool aligned = false;       ///< every load moves a multiple of 16 bytes
    bool copyable = false;      ///< every load moves at least the 4 bytes of an asynchronous copy
    bool shifted = false;       ///< rows start anywhere in a vector
    bool two_sums = false;      ///< dgamma and dbeta
    bool wide_columns = false;  ///< gamma's elements are wider than the matrices'

    /// Whether shifting decides; narrow rows lie side by side however they start.
    bool is_wide_and_shifted() const { return shifted && vectors > 64; }
};

CudaShape find_cuda_shape(const Spec& spec);

/// May need more stages or blocks than fit.
CudaSchedule cuda_table(const CudaShape& shape, const Target& target);

}  // namespace normjit::schedule
