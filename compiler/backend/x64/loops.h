// SPDX-License-Identifier: Apache-2.0
// The loops around the arithmetic of `rows`: over the blocks of a row group, the rows of a block, the columns of a row;
// with the general registers and the stack frame that they need.
#pragma once

#include "backend/cpu/pieces.h"
#include "backend/x64/assembler.h"
#include "backend/x64/frame.h"
#include "backend/x64/line_writer.h"
#include "plan/plan.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace normjit::backend::x64 {

/// Of the stack, for the kept elements of one row.
int64_t kept_row_bytes(const plan::Plan& plan);

/// Of which block something is. next: with CpuSchedule::overlap, whose loop reads that block for the first time.
enum class Block { current, next };

class RowLoops {
  public:
    RowLoops(Assembler& assembler, const plan::Plan& plan, Caching caching, Extent extent);

    /// Caching::realign: not 0 where the function starts if rows of dx go by way of the stack.
    static Xbyak::Reg64 realigns() { return Xbyak::util::rsi; }

    /// The whole function around body(). Extent::part.
    void in_block(const std::function<void()>& body);

    /// The whole function around begin(), which runs once, and body(), which runs once per block. Extent::rows.
    void for_each_block(const std::function<void()>& begin, const std::function<void()>& body);

    /// body() as long as the next block is there and full; go_to_next_block() in it. Extent::rows.
    void while_next_is_full(const std::function<void()>& body);
    void go_to_next_block();

    /// body() once per row of the block, with pointer() at that row, and next() at the same row of the next block; in
    /// the last block, of this one.
    void for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& next_rows,
                      const std::function<void()>& body);

    /// body() once for every lanes() rows of the block, for arithmetic with a row in each lane.
    void for_each_rows(const std::function<void()>& body);

    /// body(units) for all columns of a row or of the part, `width` whole units at a time; the rest and the tail come
    /// last, together.
    void for_each_columns(int width, const std::function<void(const std::vector<Columns>&)>& body);

    /// The last block's rows of dx leave the stack, if they are there. Between row loops.
    void write_lines();

    /// Goes to `label` in the first block of the group or team.
    void jump_if_first_block(const Xbyak::Label& label);
    /// Goes to `label` unless the column sums end with this block. Extent::part.
    void jump_unless_it_ends(const Xbyak::Label& label);

    /// The same columns of next(), into L2 or L1. Or columns of the row of `block` that come next; beyond the last row
    /// that does no harm.
    void prefetch(const std::vector<Tensor>& ahead, const std::vector<Columns>& columns, Block block = Block::current);

    Place place(Tensor tensor, const Columns& columns, Block block = Block::current) const {
        return {block == Block::next ? next(tensor) : pointer(tensor), column_, columns.elements};
    }
    /// Element `elements` of the group's partials, counted from the current column.
    Xbyak::Address partial(int64_t elements);
    /// Of a column output. Extent::part.
    Place output_place(Tensor tensor, const Columns& columns);
    /// Where the entry of a row value is kept: the current row's, and within for_each_rows() those of all its rows.
    Xbyak::RegExp slot(ValueId id, Block block = Block::current) const;
    bool has_slot(ValueId id) const;
    /// The kept elements of the current row at the current columns plus `elements`, within for_each_row().
    Xbyak::Address kept_element(int64_t elements);
    /// The elements of an [M] input, within for_each_rows().
    void load_row_input(const Xbyak::Zmm& to, Tensor tensor, Block block);
    /// Keeps the current row's sums of a sweep, a register each, ...
    void keep_sums(const std::vector<Xbyak::Zmm>& sums);
    /// ... and before that, `count` zeros for each row of a full block, ...
    void keep_zeros(size_t count);
    /// ... for for_each_rows(), where, after find_sums(), this is register `sum` of the row `row` rows after the first.
    Xbyak::Address kept_sum(size_t sum, int row);
    void find_sums();
    /// Within for_each_rows(): writes the part's own sums of row mean `mean` of the plan, and adds up those of all
    /// parts, in their order. Extent::part.
    void write_part_sums(int64_t mean, const Xbyak::Zmm& sums);
    void add_part_sums(int64_t mean, const Xbyak::Zmm& to);
    /// Rows that for_each_rows() has in its lanes at most.
    int rows_at_once() const { return std::min(cpu_.row_block, a_.lanes()); }

  private:
    void assign_registers();
    void end();
    void begin_group();
    std::vector<Columns> rest_of_row(int width) const;
    void for_each_columns_of_part(int width, const std::function<void(const std::vector<Columns>&)>& body);
    int64_t whole_steps(int width) const { return plan_.spec.cols / a_.unit_columns() / width; }
    void begin_block();
    void leave_block();
    int slots_bytes() const { return static_cast<int>(plan_.row_slots.size()) * slot_rows() * a_.element_bytes(); }
    int slot_rows() const { return (cpu_.row_block + a_.lanes() - 1) / a_.lanes() * a_.lanes(); }
    std::vector<Columns> units(int whole, bool tail) const;
    bool keeps_elements() const { return !plan_.kept_elements.empty(); }
    Xbyak::Reg64 kept() const { return Xbyak::Reg64(kept_register_); }
    bool uses(Tensor tensor) const;
    Xbyak::Reg64 pointer(Tensor tensor) const { return Xbyak::Reg64(pointer_register_[tensor]); }
    Xbyak::Reg64 next(Tensor tensor) const { return Xbyak::Reg64(next_register_[tensor]); }
    Xbyak::Address block_pointer(Tensor tensor);
    Xbyak::Address task_data(Tensor tensor);
    Xbyak::Address task_stride(Tensor tensor);
    Xbyak::Address row_stride(Tensor tensor);  ///< of where the rows are computed
    Xbyak::Address sweep_task(size_t offset) { return a_.qword[task_ + offset]; }
    Xbyak::Address in_frame(int offset) { return a_.qword[a_.rsp + offset]; }

    const Xbyak::Reg64 task_{Xbyak::Operand::RDI};
    const Xbyak::Reg64 column_{Xbyak::Operand::RSI};  ///< first column of the step or strip
    const Xbyak::Reg64 row_{Xbyak::Operand::RDX};     ///< row within the block
    const Xbyak::Reg64 partials_{Xbyak::Operand::R14};
    const Xbyak::Reg64 scratch_{Xbyak::Operand::RAX};

    Assembler& a_;
    const plan::Plan& plan_;
    const CpuSchedule& cpu_;
    const Caching caching_;
    const Extent extent_;
    PerTensor<int> pointer_register_;  ///< matrices: the current row, within row loops. Columns: always
    int kept_register_ = 0;            ///< the current row's kept elements
    PerTensor<int> next_register_;     ///< the current row, a block later: fetched ahead, or read with overlap
    int sums_at_, pointers_at_, block_rows_at_, rows_left_at_, rows_ahead_at_, first_block_at_, end_at_, dx_stride_at_,
        kept_at_, frame_bytes_;           ///< offsets from rsp; slots stand at 0
    std::optional<LineWriter> dx_lines_;  ///< Caching::realign
};

}  // namespace normjit::backend::x64
