// SPDX-License-Identifier: Apache-2.0
// The border between generated CPU code and the runtime that calls it: System V calling convention, one pointer in,
// nothing out. Generated code reads these fields by offset; it keeps every callee-saved register and MXCSR.
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
    const void* data = nullptr;  ///< outputs are written through it
    int64_t stride = 0;          ///< of matrices: bytes from one row to the next
};

/// Column sums are sums of sums, so that their error does not grow with the rows: of a block of rows, of the blocks of
/// a stretch, of the stretches of a group. The first stretch is summed in the group's partials. Each of the others has
/// arrays of its own and is added to the partials by its last block: it closes; what that addition loses starts the
/// next stretch (Kahan, "Further remarks on reducing truncation errors", 1965).
constexpr int64_t stretch_blocks(int64_t block_rows) { return std::clamp<int64_t>(256 / block_rows, 8, 32); }
/// The final reduce sums so many partials at once, in the same way.
inline constexpr int64_t groups_at_once = 16;
/// Partial arrays are padded to two cache lines: whole units of columns for every back end, so that tails need no masks
/// there.
inline constexpr int64_t partial_unit_bytes = 128;

/// Returns the larger of a, which must not be negative, and |b|; NaN if either is NaN: as integers, NaN is above all.
template <class T>
T larger_magnitude(T a, T b) {
    using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
    return std::bit_cast<T>(std::max(std::bit_cast<Bits>(a), std::bit_cast<Bits>(std::abs(b))));
}

/// One row group. Matrix and row-shaped pointers stand at the group's first row.
struct RowsTask {
    std::array<CpuOperand, max_operands> operands;  ///< by place in the OperandList
    void* partials = nullptr;  ///< this group's workspace: arrays of partial_cols, twice column_sums and more. Written,
                               ///< not read first
    int64_t rows = 0;          ///< rows of this group, at least 1
};

/// Rows of one slice, for a spec with slices. A row group may have several such tasks, one after the other, with the
/// same partials.
struct SlicedRowsTask {
    RowsTask task;
    int64_t continues = 0;  ///< 1: the partials and the arrays behind them, of what they lost, hold the sums so far
};

/// Where a RowsTask has the parts of an operand, in bytes from its start.
constexpr size_t data_offset(size_t place) {
    return offsetof(RowsTask, operands) + place * sizeof(CpuOperand) + offsetof(CpuOperand, data);
}
constexpr size_t stride_offset(size_t place) {
    return offsetof(RowsTask, operands) + place * sizeof(CpuOperand) + offsetof(CpuOperand, stride);
}

/// One sweep over a block of rows, a range of their columns. Matrix and row-shaped pointers stand at the block's first
/// row and column 0, those to columns at column 0. `task.rows` counts from this block on to the team's last row: the
/// sweep takes block_rows of them at most. `task.partials` are the
/// team's in the first stretch, then the arrays of the other stretches, column_sums of them further on.
///
/// A sweep that ends in row means writes the sums of its columns, for each mean a vector of block_rows elements of the
/// compute type (rounded up to whole registers), to `own_sums`; later sweeps read those of all parts from `sums`, where
/// the vectors of one mean stand one after the other by part, mean after mean in the order of the sweeps. The last
/// sweep adds to the column sums of the stretch unless it `starts`, and those to the partials where it `closes`. It
/// stores the column outputs instead if `ends`.
///
/// Both sweeps of a plan with two, CpuSchedule::overlap: the last one over the block, the first one over the next, full
/// block. `sums` are the block's, `own_sums` the next one's.
struct SweepTask {
    RowsTask task;
    const void* sums = nullptr;
    void* own_sums = nullptr;
    int64_t column_begin = 0;  ///< a multiple of range_cols
    int64_t column_end = 0;    ///< N, or the next part's first column
    int64_t starts = 0;        ///< 1: the stretch has no sums yet: this is the first block of the first or the second
    int64_t closes = 0;        ///< 1: this is the last block of a stretch, or the team's, behind the first stretch
    int64_t ends = 0;          ///< 1: this is the matrix's last block, there is one team, and no scalar output
};

/// A range of columns of the final reduce: a multiple of 32, or what ends the row after such ranges. Pointers stand at
/// the range's first column. Scalar outputs are left to the caller: each is the largest number in the first
/// partial_unit_bytes that the task leaves in group 0's partials, of all tasks.
struct FinalTask {
    std::array<const void*, max_operands> data{};  ///< column inputs and outputs, by place in the OperandList
    void* partials = nullptr;                      ///< of row group 0
    int64_t group_stride = 0;                      ///< bytes from one group's partials to the next's
    int64_t groups = 0;                            ///< summed in this order, groups_at_once at a time; 0 give zeros
    int64_t cols = 0;                              ///< columns of this range, at least 1
    int64_t per_slice = 0;  ///< 1: of a slice, for the outputs with a row for each; 0: for the others
};

using RowsFunction = void (*)(const RowsTask*);
using SweepFunction = void (*)(const SweepTask*);
using FinalFunction = void (*)(const FinalTask*);

}  // namespace normjit
