// SPDX-License-Identifier: Apache-2.0
// The border between generated CPU code and the runtime that calls it. Functions use the System V calling convention,
// take one pointer and return nothing. They read these fields by offset, and preserve every callee-saved register and
// MXCSR.
#pragma once

#include "normjit/operand.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace normjit {

struct CpuOperand {
    const void* data = nullptr;  ///< the code also writes outputs through this pointer
    int64_t stride = 0;          ///< matrices only: bytes from one row to the next
};

/// Column sums are added in levels, so that their error does not grow with the number of rows: over a block of rows,
/// over the blocks of a segment, and over the segments of a group. The first segment is summed in the group's partials.
/// Each later one has its own arrays; its last block closes it, which means that it is added to the partials. The
/// rounding error of that addition is the start of the next segment (Kahan, "Further remarks on reducing truncation
/// errors", 1965).
constexpr int64_t segment_blocks(int64_t block_rows) { return std::clamp<int64_t>(256 / block_rows, 8, 32); }
/// The final reduce adds this many partials at a time, in the same way.
inline constexpr int64_t groups_at_once = 16;
/// Partial arrays are padded to two cache lines. They then consist of whole units for every back end, so that tails
/// need no masks.
inline constexpr int64_t partial_unit_bytes = 128;

/// Returns the larger of a, which must not be negative, and |b|; NaN if either is NaN. Compares the bits as integers,
/// among which NaN is the largest.
template <class T>
T larger_magnitude(T a, T b) {
    using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
    return std::bit_cast<T>(std::max(std::bit_cast<Bits>(a), std::bit_cast<Bits>(std::abs(b))));
}

/// One row group. Pointers to matrices and [M] tensors are at the group's first row.
struct RowsTask {
    std::array<CpuOperand, max_operands> operands;  ///< indexed by place in the OperandList
    void* partials = nullptr;  ///< this group's workspace: arrays of partial_cols, written before they are read
    int64_t rows = 0;          ///< rows of this group, at least 1
};

/// Rows of one slice, for a spec with slices. A row group may get several such tasks in turn, with the same partials.
struct SlicedRowsTask {
    RowsTask task;
    int64_t continues = 0;  ///< 1: the partials and their rounding errors already hold the sums of earlier rows
};

/// Return the offsets of an operand's members in a RowsTask, in bytes.
constexpr size_t data_offset(size_t place) {
    return offsetof(RowsTask, operands) + place * sizeof(CpuOperand) + offsetof(CpuOperand, data);
}
constexpr size_t stride_offset(size_t place) {
    return offsetof(RowsTask, operands) + place * sizeof(CpuOperand) + offsetof(CpuOperand, stride);
}

/// One sweep over a block of rows, for a range of their columns. Pointers to matrices and [M] tensors are at the
/// block's first row and column 0, column pointers at column 0. `task.rows` counts from this block to the last row of
/// the thread group; the sweep takes at most block_rows of them. In the first segment, `task.partials` points to the
/// partials of the thread group. In the others it points to the arrays of later segments, which begin column_sums
/// arrays further on.
///
/// A sweep that ends in row means writes the sums of its columns to `own_sums`: for each mean, a vector of block_rows
/// elements of the compute type, rounded up to whole registers. Later sweeps read the sums of all ranges from `sums`,
/// where the vectors of one mean follow each other by range, mean after mean in the order of the sweeps. The last sweep
/// adds to the column sums of the segment unless it `starts`, and adds those sums to the partials if it `closes`. If it
/// `ends`, it stores the column outputs instead.
///
/// With CpuSchedule::overlap, a plan of two sweeps also has a function for both: the last sweep over the block, and the
/// first sweep over the next block, which is full. `sums` then belong to the block, and `own_sums` to the next one.
struct SweepTask {
    RowsTask task;
    const void* sums = nullptr;
    void* own_sums = nullptr;
    int64_t column_begin = 0;  ///< a multiple of range_cols
    int64_t column_end = 0;    ///< N, or the next range's first column
    int64_t starts = 0;        ///< 1: the segment has no sums yet; this is the first block of the first or second
                               ///< segment
    int64_t closes = 0;        ///< 1: this is the last block of the thread group, or of a segment after the first
    int64_t ends = 0;          ///< 1: this is the last block of the matrix, and there is one thread group
};

/// A range of columns of the final reduce: a multiple of 32, or the rest of the row. Pointers are at the first column
/// of the range. The caller makes scalar outputs: each is the largest number that the tasks leave in the first
/// partial_unit_bytes of the partials of group 0.
struct FinalTask {
    std::array<const void*, max_operands> data{};  ///< column inputs and outputs, by place in the OperandList
    void* partials = nullptr;                      ///< the partials of row group 0
    int64_t group_stride = 0;                      ///< bytes from the partials of one group to those of the next
    /// Groups are summed in this order, groups_at_once at a time. If there are none, sums are zero.
    int64_t groups = 0;
    int64_t cols = 0;       ///< columns of this range, at least 1
    int64_t per_slice = 0;  ///< 1: reduces one slice, for the outputs with a row per slice; 0: reduces the other
                            ///< outputs
};

using RowsFunction = void (*)(const RowsTask*);
using SweepFunction = void (*)(const SweepTask*);
using FinalFunction = void (*)(const FinalTask*);

}  // namespace normjit
