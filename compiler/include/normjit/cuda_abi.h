// SPDX-License-Identifier: Apache-2.0
// The border between generated CUDA code and the runtime that launches it: every kernel of an artifact takes one
// CudaArguments by value. templates/cuda/plan.cuh has the same struct as `Arguments` and checks the same size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace normjit {

/// Counters that the code keeps to pace its blocks; templates/cuda/plan.cuh has as many.
inline constexpr uint32_t cuda_progress_slots = 64;

/// Tensors stand in Tensor order, those that the spec reads (Spec::reads) or writes only: the matrices x, dy and
/// dresidual; the columns gamma and beta; the rows mean and rstd; the column outputs dgamma and dbeta. dbeta alone
/// reads one matrix, dy. Unused places may hold anything.
struct CudaArguments {
    const void* matrix[3];     ///< [rows, cols]
    int64_t matrix_stride[3];  ///< elements from row to row; 0 repeats one row
    void* output;              ///< dx; may be exactly one of the matrices
    int64_t output_stride;
    const void* column[2];   ///< [cols]
    const void* row[2];      ///< [rows]
    void* column_output[2];  ///< [cols]
    void* partials;          ///< at Geometry::partials_at() in the workspace: [column_sums, row_groups, cols]
    void* row_values;        ///< at the start of the workspace: Geometry::row_bytes a row
    int64_t rows;
    uint32_t row_groups;     ///< of this launch, at least 1 but for the final reduce: 0 groups give zeros
    uint32_t rows_each;      ///< rows / (row_groups * CudaPath::rows_per_block); a launch needs it to fit 32 bits
    uint32_t rows_extra;     ///< the remainder of that division
    uint32_t progress_slot;  ///< below cuda_progress_slots; launches at the same time are faster with different ones
};

static_assert(sizeof(void*) == 8 && sizeof(CudaArguments) == 152);
static_assert(offsetof(CudaArguments, matrix_stride) == 24 && offsetof(CudaArguments, output) == 48);
static_assert(offsetof(CudaArguments, column) == 64 && offsetof(CudaArguments, row) == 80);
static_assert(offsetof(CudaArguments, column_output) == 96 && offsetof(CudaArguments, partials) == 112);
static_assert(offsetof(CudaArguments, rows) == 128 && offsetof(CudaArguments, row_groups) == 136);

}  // namespace normjit
