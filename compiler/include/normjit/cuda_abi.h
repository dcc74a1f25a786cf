// SPDX-License-Identifier: Apache-2.0
// The border between generated CUDA code and the runtime that launches it: every kernel of an artifact takes one
// CudaArguments by value. templates/cuda/plan.cuh has the same struct as `Arguments` and checks the same size.
#pragma once

#include "normjit/operand.h"

#include <cstddef>
#include <cstdint>

namespace normjit {

/// Counters that the code keeps to pace its blocks; templates/cuda/plan.cuh has as many.
inline constexpr uint32_t cuda_progress_slots = 64;

struct CudaOperand {
    void* data;          ///< [rows, cols], [rows] or [cols]; a matrix output may be exactly one of the matrices
    int64_t row_stride;  ///< of matrices: elements from row to row; 0 repeats one row
};

/// Unused operands may hold anything.
struct CudaArguments {
    CudaOperand operand[max_operands];  ///< by place in the OperandList
    void* partials;    ///< at Geometry::partials_at() in the workspace: [column_sums, row_groups, cols]
    void* row_values;  ///< at the start of the workspace: Geometry::row_bytes a row
    int64_t rows;
    uint32_t row_groups;     ///< of this launch, at least 1 but for the final reduce: 0 groups give zeros
    uint32_t rows_each;      ///< rows / (row_groups * CudaPath::rows_per_block); a launch needs it to fit 32 bits
    uint32_t rows_extra;     ///< the remainder of that division
    uint32_t progress_slot;  ///< below cuda_progress_slots; launches at the same time are faster with different ones
};

static_assert(sizeof(void*) == 8 && sizeof(CudaArguments) == 296);
static_assert(offsetof(CudaArguments, partials) == 256 && offsetof(CudaArguments, rows) == 272);
static_assert(offsetof(CudaArguments, row_groups) == 280);

}  // namespace normjit
