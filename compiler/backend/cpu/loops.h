// SPDX-License-Identifier: Apache-2.0
// The loops around the arithmetic of `rows`: over the blocks of a row group, the rows of a block, and the columns of a
// row. This code also moves the pointers and lays out the function's frame.
#pragma once

#include "backend/cpu/machine.h"
#include "backend/cpu/nontemporal_staging.h"
#include "backend/cpu/plan_queries.h"
#include "backend/cpu/segments.h"
#include "plan/plan.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace normjit::backend::cpu {

/// Which block a row belongs to: the current one, or the next one, which an overlapped loop reads ahead.
enum class Block { current, next };

class RowLoops {
  public:
    using Emit = Machine::Emit;

    RowLoops(Machine& machine, const plan::Plan& plan, Caching caching, Extent extent);

    /// Emits the whole function around body(). Only for Extent::column_range.
    void in_block(const Emit& body);

    /// Emits the whole function around begin(), which runs once, and body(), which runs once per block. Only for
    /// Extent::rows.
    void for_each_block(const Emit& begin, const Emit& body);

    /// Repeats body() while the next block exists and is full; body() calls go_to_next_block(). Only for Extent::rows.
    void while_next_is_full(const Emit& body);
    void go_to_next_block();

    /// Repeats body() for each row of the block. Inside, element() can address the row and the same row of the next
    /// block. The last block has no next block; element() then addresses its own row for both.
    void for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& next_rows, const Emit& body);

    /// Repeats body() for every rows_at_once() rows of the block. It serves arithmetic on [M] values.
    void for_each_rows(const Emit& body);

    /// Repeats body(units) for all columns of a row or of the range, `width` whole units at a time. The last call has
    /// the remaining units and the tail. A stage's end() follows every `steps` steps.
    using ColumnsBody = std::function<void(const std::vector<Columns>&)>;
    struct Stage {
        int64_t steps;
        Emit end;
    };
    void for_each_columns(int width, const ColumnsBody& body, const std::optional<Stage>& stage = {});

    /// Moves the rows of the staged matrix that the last block wrote from the stack to memory, if there is such a
    /// matrix. Called between row loops.
    void write_lines();

    /// Returns the segments of the group's column sums.
    Segments& segments() { return segments_; }
    /// Emits a branch: the block that completes the column sums runs `then`, and all others run `otherwise`. Only for
    /// Extent::column_range.
    void if_it_ends(const Emit& then, const Emit& otherwise);

    /// Emits body() for the range that begins at column 0. Only for Extent::column_range.
    void in_first_range(const Emit& body);

    /// Prefetches `columns` of each tensor: from the same row of the next block or, with prefetch=3, from 2 KiB further
    /// along the row of `block`. It may read past the last row.
    void prefetch(const std::vector<Tensor>& ahead, const std::vector<Columns>& columns, Block block = Block::current);

    Address element(Tensor tensor, const Columns& columns, Block block = Block::current) const;
    /// Return the address of element `elements` in the workspace of the group, or of its segment, at the current
    /// column.
    Address of_group(int64_t elements) const { return of_column(group_, elements); }
    Address of_segment(int64_t elements) const { return of_column(segments_.sums(), elements); }
    /// Returns the address of a column output. Only for Extent::column_range.
    Address output(Tensor tensor, const Columns& columns);
    /// Returns the address of the element of an output [M,N/G] for the current group. Only inside for_each_row().
    Address group_element(Tensor tensor) const { return {pointer_[tensor]}; }
    /// Moves the pointers of outputs [M,N/G] past this many groups.
    void pass_groups(int64_t count);
    /// Returns the address of a row value: the current row's value or, inside for_each_rows(), the values of all its
    /// rows.
    Address slot(ValueId id, Block block = Block::current) const;
    bool has_slot(ValueId id) const;
    /// Returns the address `elements` after the first cached element of the current row. Only inside for_each_row().
    Address cached_element(int64_t elements) const { return of_column(cached_, elements); }
    /// Loads the elements of an [M] input. Only inside for_each_rows().
    Vector load_row_input(Vector to, Tensor tensor, Block block);
    /// Stores the elements of an [M] output. Overwrites `value`. Only inside for_each_rows().
    void store_row_output(Tensor tensor, Vector value, Block block);

    /// Finds the sums of a sweep that are kept for the current row, for kept_sum(), and holds each in a register.
    void find_sums();
    Address kept_sum(size_t sum) const;
    /// Returns the address of what the stages of a sum that have ended add up to. Only with stages.
    Address total_of_stages(size_t sum) const { return kept_sum(most_sums_ + sum); }
    /// Repeats body() for each row of a full block. Inside, kept_sum() addresses the sums of the row.
    void for_each_kept_row(const Emit& body);
    /// Writes the range's own sums of row mean `mean`. Only inside for_each_rows(), for Extent::column_range.
    void write_range_sums(int64_t mean, Vector sums);
    Accumulator add_range_sums(int64_t mean, Registers& registers, Reduction reduction);
    /// Returns the most rows that one step of for_each_rows() handles.
    int rows_at_once() const { return std::min(cpu_.row_block, m_.rows_at_once()); }

  private:
    void assign_pointers();
    void lay_out_frame();
    void begin_group();
    void begin_block();
    Condition leave_block();
    void end();
    void for_each_columns_of_range(int width, const ColumnsBody& body, const std::optional<Stage>& stage);
    bool any_stages() const { return steps_of_stage(plan_) > 0 || strips_of_stage(plan_) > 0; }
    void one_step(int width, const ColumnsBody& body);
    void advance(int width, const Amount& end, const ColumnsBody& body, const std::optional<Stage>& stage);
    int64_t whole_steps(int width) const { return plan_.spec.cols / m_.unit_columns() / width; }
    std::vector<Columns> rest_of_row(int width) const;
    std::vector<Columns> units(int whole, bool tail) const;
    bool caches_elements() const { return !plan_.cpu().cached_elements.empty(); }
    bool is_staged(Tensor tensor) const { return staged_ != nullptr && staged_->tensor == tensor; }
    Field data(Tensor tensor) const;
    Field stride(Tensor tensor) const;
    Amount row_stride(Tensor tensor) const;  ///< the stride of the rows that are being computed, in memory or on the
                                             ///< stack
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
    const Operand* const staged_;  ///< Caching::staged: the matrix that goes through the stack
    const Integer column_;         ///< the first column of the step or strip
    const Integer row_;            ///< the row within the block
    Segments segments_;
    PerTensor<Integer> pointer_;  ///< matrices: the current row, inside row loops. Columns: always valid
    PerTensor<Integer> next_;     ///< the current row of the next block, which is prefetched, or read with overlap
    PerTensor<Integer> block_;    ///< matrices and [M] tensors: the block's first row
    Integer group_;               ///< the group's workspace, if it has cached columns
    Integer cached_;              ///< the current row's cached elements
    Integer stage_end_;           ///< where the stage of row sums ends, if there are stages
    Integer block_rows_, rows_left_, rows_ahead_, end_, staged_stride_;
    size_t most_sums_ = 0;                                ///< of a sweep
    int64_t slots_at_ = 0, sums_at_ = 0, cached_at_ = 0;  ///< offsets in the frame
    std::optional<NonTemporalStaging> staging_;           ///< Caching::staged
};

}  // namespace normjit::backend::cpu
