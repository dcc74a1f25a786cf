// SPDX-License-Identifier: Apache-2.0
// The loops around the arithmetic of `rows`: over the blocks of a row group, the rows of a block, the columns of a row;
// with the pointers that they move, and what the function's frame holds.
#pragma once

#include "backend/cpu/line_writer.h"
#include "backend/cpu/machine.h"
#include "backend/cpu/plan_queries.h"
#include "backend/cpu/stretches.h"
#include "plan/plan.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace normjit::backend::cpu {

/// Of which block something is. next: with CpuSchedule::overlap, whose loop reads that block for the first time.
enum class Block { current, next };

class RowLoops {
  public:
    using Emit = Machine::Emit;

    RowLoops(Machine& machine, const plan::Plan& plan, Caching caching, Extent extent);

    /// The whole function around body(). Extent::column_range.
    void in_block(const Emit& body);

    /// The whole function around begin(), which runs once, and body(), which runs once per block. Extent::rows.
    void for_each_block(const Emit& begin, const Emit& body);

    /// body() as long as the next block is there and full; go_to_next_block() in it. Extent::rows.
    void while_next_is_full(const Emit& body);
    void go_to_next_block();

    /// body() once per row of the block, with element() in that row, and in the same row of the next block; in the last
    /// block, of this one.
    void for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& next_rows, const Emit& body);

    /// body() once for every rows_at_once() rows of the block, for arithmetic on [M] values.
    void for_each_rows(const Emit& body);

    /// body(units) for all columns of a row or of the range, `width` whole units at a time; the rest and the tail come
    /// last, together.
    using ColumnsBody = std::function<void(const std::vector<Columns>&)>;
    void for_each_columns(int width, const ColumnsBody& body);

    /// The last block's rows of the realigned matrix leave the stack, if they are there. Between row loops.
    void write_lines();

    /// Of the group's column sums.
    Stretches& stretches() { return stretches_; }
    /// One or the other, when the column sums end with this block. Extent::column_range.
    void if_it_ends(const Emit& then, const Emit& otherwise);

    /// body() in the range that begins at column 0. Extent::column_range.
    void in_first_range(const Emit& body);

    /// Fetches `columns` of each tensor: of the same row one block on, or with prefetch=3 2 KiB on in the row of
    /// `block`. May run past the last row.
    void prefetch(const std::vector<Tensor>& ahead, const std::vector<Columns>& columns, Block block = Block::current);

    Address element(Tensor tensor, const Columns& columns, Block block = Block::current) const;
    /// Element `elements` of the group's workspace, counted from the current column; the same of its stretch's arrays.
    Address of_group(int64_t elements) const { return of_column(group_, elements); }
    Address of_stretch(int64_t elements) const { return of_column(stretches_.sums(), elements); }
    /// Of a column output. Extent::column_range.
    Address output(Tensor tensor, const Columns& columns);
    /// Where the entry of a row value is kept: the current row's, and within for_each_rows() those of all its rows.
    Address slot(ValueId id, Block block = Block::current) const;
    bool has_slot(ValueId id) const;
    /// The cached elements of the current row at the current columns plus `elements`, within for_each_row().
    Address cached_element(int64_t elements) const { return of_column(cached_, elements); }
    /// The elements of an [M] input, within for_each_rows().
    Vector load_row_input(Vector to, Tensor tensor, Block block);
    /// The elements of an [M] output, likewise. `value` is lost.
    void store_row_output(Tensor tensor, Vector value, Block block);

    /// Finds where the current row's sums of a sweep are kept, a register each: kept_sum().
    void find_sums();
    Address kept_sum(size_t sum) const;
    /// Zeros for each row of a full block: its kept sums.
    void keep_zeros(size_t count);
    /// Within for_each_rows(), the range's own sums of row mean `mean` of the plan, and the sum of those of all ranges,
    /// in their order. Extent::column_range.
    void write_range_sums(int64_t mean, Vector sums);
    Accumulator add_range_sums(int64_t mean, Registers& registers);
    /// Rows that for_each_rows() has at once at most.
    int rows_at_once() const { return std::min(cpu_.row_block, m_.rows_at_once()); }

  private:
    void assign_pointers();
    void lay_out_frame();
    void begin_group();
    void begin_block();
    Condition leave_block();
    void end();
    void for_each_columns_of_range(int width, const ColumnsBody& body);
    int64_t whole_steps(int width) const { return plan_.spec.cols / m_.unit_columns() / width; }
    std::vector<Columns> rest_of_row(int width) const;
    std::vector<Columns> units(int whole, bool tail) const;
    bool caches_elements() const { return !plan_.cpu().cached_elements.empty(); }
    bool is_realigned(Tensor tensor) const { return realigned_ != nullptr && realigned_->tensor == tensor; }
    Field data(Tensor tensor) const;
    Field stride(Tensor tensor) const;
    Amount row_stride(Tensor tensor) const;  ///< of where the rows are computed
    Address of_column(Integer base, int64_t elements) const;
    int64_t slot_rows() const {
        return (cpu_.row_block + m_.rows_at_once() - 1) / m_.rows_at_once() * m_.rows_at_once();
    }
    int64_t slots_bytes() const;

    Machine& m_;
    const plan::Plan& plan_;
    const CpuSchedule& cpu_;
    const Caching caching_;
    const Extent extent_;
    const Operand* const realigned_;  ///< Caching::realign: the matrix that goes by way of the stack
    const Integer column_;            ///< first column of the step or strip
    const Integer row_;               ///< row within the block
    Stretches stretches_;
    PerTensor<Integer> pointer_;  ///< matrices: the current row, within row loops. Columns: always
    PerTensor<Integer> next_;     ///< the current row, a block later: fetched ahead, or read with overlap
    PerTensor<Integer> block_;    ///< matrices and [M] tensors: the block's first row
    Integer group_;               ///< the workspace, where it has cached columns
    Integer cached_;              ///< the current row's cached elements
    Integer block_rows_, rows_left_, rows_ahead_, end_, lines_stride_;
    int64_t slots_at_ = 0, sums_at_ = 0, cached_at_ = 0;  ///< in the frame
    std::optional<LineWriter> lines_;                     ///< Caching::realign
};

}  // namespace normjit::backend::cpu
