// SPDX-License-Identifier: Apache-2.0
// The border between generated CUDA code and the runtime that launches it: every kernel of an artifact takes one
// CudaArguments by value. templates/cuda/plan.cuh has the same struct as `Arguments` and checks the same size.
#pragma once

#include "normjit/operand.h"

#include <cstddef>
#include <cstdint>

namespace normjit {

/// The number of counters that generated code uses to pace its blocks. Every generated file has this many.
inline constexpr uint32_t cuda_progress_slots = 64;

struct CudaOperand {
    void* data;          ///< [rows, cols], [rows] or [cols]; a matrix output may be exactly the memory of one of the
                         ///< matrices
    int64_t row_stride;  ///< matrices only: elements from one row to the next; 0 repeats one row
};

/// The arguments of a kernel. Members that each thread needs before its first load come first, so that for few operands
/// they are in one line of the constant cache (NOTES N-728). Unused operands may hold anything. For specs without
/// slices, the struct ends before slice_rows.
struct CudaArguments {
    uint32_t parts;          ///< see RowPartition; 0 makes the sums of a final reduce zero
    uint32_t rows_each;      ///< the rows of all parts / (parts * CudaPath::rows_per_block), rounded down; must fit in
                             ///< 32 bits
    uint32_t rows_extra;     ///< the remainder of that division
    uint32_t progress_slot;  ///< below cuda_progress_slots; launches that run at the same time are faster with
                             ///< different slots
    CudaOperand operand[max_operands];  ///< indexed by place in the OperandList
    void* partials;      ///< at Geometry::partials_at() in the workspace: [column outputs, partial_rows, cols], then
                         ///< [scalar outputs, partial_rows, scalar_parts]
    void* row_values;    ///< at the start of the workspace: Geometry::row_bytes for each row
    int64_t rows;        ///< rows of all slices
    int64_t slice_rows;  ///< M
    int64_t reduced_slices;
    uint32_t pieces;
    uint32_t row_groups;
    uint32_t partial_rows;               ///< rows of one partial array; equal to `parts` if there are no slices
    int64_t slice_stride[max_operands];  ///< matrices and tensors per slice only, in elements
};

static_assert(sizeof(void*) == 8 && sizeof(CudaArguments) == 456);
static_assert(offsetof(CudaArguments, operand) == 16 && offsetof(CudaArguments, partials) == 272);
static_assert(offsetof(CudaArguments, rows) == 288 && offsetof(CudaArguments, slice_rows) == 296);
static_assert(offsetof(CudaArguments, slice_stride) == 328);

}  // namespace normjit
