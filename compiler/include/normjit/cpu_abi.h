// SPDX-License-Identifier: Apache-2.0
// The border between generated CPU code and the runtime that calls it: System V calling convention, one pointer in,
// nothing out. Generated code reads these fields by offset; it keeps every callee-saved register and MXCSR.
#pragma once

#include "normjit/tensor.h"

#include <cstdint>

namespace normjit {

/// One row group. Matrix and row-shaped pointers stand at the group's first row.
struct RowsTask {
    PerTensor<const void*> data;  ///< by Tensor; outputs are written through their pointer
    PerTensor<int64_t> stride;    ///< bytes from one row to the next, of matrices
    void* partials = nullptr;  ///< this group's workspace: column_sums arrays of partial_cols. Written, not read first
    int64_t rows = 0;          ///< rows of this group, at least 1
};

/// A range of columns of the final reduce. Pointers stand at the range's first column.
struct FinalTask {
    PerTensor<const void*> data;     ///< column outputs, by Tensor
    const void* partials = nullptr;  ///< of row group 0
    int64_t group_stride = 0;        ///< bytes from one group's partials to the next's
    int64_t groups = 0;              ///< summed in this order: 0, 1, ... 0 groups give zeros
    int64_t cols = 0;                ///< columns of this range, at least 1
};

using RowsFunction = void (*)(const RowsTask*);
using FinalFunction = void (*)(const FinalTask*);

}  // namespace normjit
