// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/loops.h"

#include "artifact/cpu_abi.h"
#include "support/contains.h"

#include <cstddef>

namespace normjit::backend::cpu {

RowLoops::RowLoops(Machine& machine, const plan::Plan& plan, Caching caching, Extent extent)
    : m_(machine),
      plan_(plan),
      cpu_(std::get<CpuSchedule>(plan.schedule.device)),
      caching_(caching),
      extent_(extent),
      staged_(caching == Caching::staged ? staged_output(plan) : nullptr),
      column_(machine.integer(Home::a_register)),
      row_(machine.integer(Home::a_register)),
      segments_(machine, plan, extent) {
    lay_out_frame();
    assign_pointers();
}

/// Assigns registers first to the integers that are used most. Pointers for prefetching come last.
void RowLoops::assign_pointers() {
    const auto take = [&] { return m_.integer(Home::a_register); };
    for (const Operand& operand : plan_.operands) {
        const bool is_column_input = operand.axes.is_columns() && !operand.is_written();
        if (operand.is_matrix() || is_column_input) pointer_[operand.tensor] = take();
    }
    if (!plan_.cpu().cached_columns.empty()) group_ = take();
    if (caches_elements()) cached_ = take();
    if (any_stages()) stage_end_ = take();
    if (cpu_.overlap == 1) {
        for (const Tensor tensor : matrices(plan_.function, plan_.sweeps.front())) next_[tensor] = take();
    }
    if (cpu_.overlap == 1 || fetches_own_row(cpu_)) return;
    size_t most = 0;
    for (const plan::Sweep& sweep : plan_.sweeps) most = std::max(most, sweep.ahead.size());
    std::vector<Integer> next;
    while (next.size() < most) next.push_back(take());
    for (const plan::Sweep& sweep : plan_.sweeps) {
        for (size_t i = 0; i < sweep.ahead.size(); ++i) next_[sweep.ahead[i]] = next[i];
    }
}

void RowLoops::lay_out_frame() {
    for (const plan::Sweep& sweep : plan_.sweeps) most_sums_ = std::max(most_sums_, sweep.row_reductions.size());
    const int64_t kept = static_cast<int64_t>(most_sums_) * (any_stages() ? 2 : 1);
    slots_at_ = m_.reserve((1 + cpu_.overlap) * slots_bytes(), m_.register_bytes());
    sums_at_ = m_.reserve(kept * slot_rows() * m_.register_bytes(), m_.register_bytes());
    for (const Operand& operand : plan_.operands) block_[operand.tensor] = m_.integer(Home::frame);
    for (Integer* integer : {&block_rows_, &rows_left_, &rows_ahead_, &end_, &staged_stride_})
        *integer = m_.integer(Home::frame);
    cached_at_ = m_.reserve(cpu_.row_block * cached_row_bytes(plan_), line_bytes);
    if (staged_ != nullptr) staging_.emplace(m_, plan_.spec.cols, *staged_, cpu_, column_, row_);
}

int64_t RowLoops::slots_bytes() const {
    return static_cast<int64_t>(plan_.row_slots.size()) * slot_rows() * m_.element_bytes();
}

Field RowLoops::data(Tensor tensor) const { return address(data_offset(plan_.operands.place(tensor))); }
Field RowLoops::stride(Tensor tensor) const { return number(stride_offset(plan_.operands.place(tensor))); }

Amount RowLoops::row_stride(Tensor tensor) const {
    if (is_staged(tensor)) return staged_stride_;
    return stride(tensor);
}

Address RowLoops::element(Tensor tensor, const Columns& columns, Block block) const {
    const int64_t bytes = plan_.operands.of(tensor).bytes();
    return {block == Block::next ? next_[tensor] : pointer_[tensor], column_, static_cast<int>(bytes),
            columns.elements * bytes};
}

void RowLoops::pass_groups(int64_t count) {
    for (const Operand& operand : plan_.operands.matrix_outputs()) {
        if (operand.axes.has_groups()) m_.add(pointer_[operand.tensor], count * operand.bytes());
    }
}

Address RowLoops::of_column(Integer base, int64_t elements) const {
    return {base, column_, m_.element_bytes(), elements * m_.element_bytes()};
}

Address RowLoops::output(Tensor tensor, const Columns& columns) {
    m_.set(m_.temporary(), data(tensor));
    const int64_t bytes = plan_.operands.of(tensor).bytes();
    return {m_.temporary(), column_, static_cast<int>(bytes), columns.elements * bytes};
}

bool RowLoops::has_slot(ValueId id) const { return contains(plan_.row_slots, id); }

Address RowLoops::slot(ValueId id, Block block) const {
    const auto number = std::find(plan_.row_slots.begin(), plan_.row_slots.end(), id) - plan_.row_slots.begin();
    const int64_t first =
        slots_at_ + number * slot_rows() * m_.element_bytes() + (block == Block::next ? slots_bytes() : 0);
    return {m_.frame(), row_, m_.element_bytes(), first};
}

Vector RowLoops::load_row_input(Vector to, Tensor tensor, Block block) {
    if (plan_.operands.of(tensor).axes.is_scalar()) {
        m_.set(m_.temporary(), data(tensor));
        const bool has_lanes = m_.rows_at_once() > 1;
        return has_lanes ? m_.broadcast(to, {m_.temporary()}) : m_.read_rows(to, {m_.temporary()});
    }
    const int64_t bytes = plan_.operands.of(tensor).bytes();
    m_.set(m_.temporary(), block_[tensor]);
    if (block == Block::next) m_.add(m_.temporary(), cpu_.row_block * bytes);
    return m_.load_rows(to, {m_.temporary(), row_, static_cast<int>(bytes)}, plan_.function.dtype(tensor));
}

void RowLoops::store_row_output(Tensor tensor, Vector value, Block block) {
    const int64_t bytes = plan_.operands.of(tensor).bytes();
    m_.set(m_.temporary(), block_[tensor]);
    if (block == Block::next) m_.add(m_.temporary(), cpu_.row_block * bytes);
    m_.store_rows({m_.temporary(), row_, static_cast<int>(bytes)}, value, plan_.function.dtype(tensor));
}

void RowLoops::find_sums() { m_.set_to_multiple(m_.temporary(), row_, m_.register_bytes()); }

Address RowLoops::kept_sum(size_t sum) const {
    return {m_.frame(), m_.temporary(), 1, sums_at_ + static_cast<int64_t>(sum) * slot_rows() * m_.register_bytes()};
}

void RowLoops::for_each_kept_row(const Emit& body) {
    m_.set(row_, 0);
    m_.repeat_short("kept", [&] {
        find_sums();
        body();
        m_.add(row_, 1);
        return m_.compare(row_, Relation::less, cpu_.row_block);
    });
}

void RowLoops::for_each_block(const Emit& begin, const Emit& body) {
    m_.enter();
    begin_group();
    begin();
    m_.repeat("block", [&] {
        begin_block();
        body();
        return leave_block();
    });
    end();
    m_.leave();
}

void RowLoops::while_next_is_full(const Emit& body) {
    m_.repeat_while("full", [&] { return m_.compare(rows_left_, Relation::not_less, 2 * cpu_.row_block); }, body);
}

void RowLoops::go_to_next_block() {
    leave_block();
    begin_block();
}

void RowLoops::in_block(const Emit& body) {
    m_.enter();
    begin_group();
    begin_block();
    body();
    end();
    m_.leave();
}

void RowLoops::write_lines() {
    if (staging_) staging_->write_lines(block_[staged_->tensor]);
}

void RowLoops::end() {
    if (staging_) staging_->finish(block_[staged_->tensor]);
    if (caching_ == Caching::nontemporal) m_.fence_nontemporal();
}

void RowLoops::begin_group() {
    for (const Operand& operand : plan_.operands) {
        if (operand.axes.row) {
            m_.set(block_[operand.tensor], data(operand.tensor));
        } else if (operand.axes.column && !operand.is_written()) {
            m_.set(pointer_[operand.tensor], data(operand.tensor));
        }
    }
    if (staging_) {
        m_.set(staged_stride_, stride(staged_->tensor));
        staging_->begin(block_[staged_->tensor], staged_stride_);
    }
    segments_.begin_group();
    if (!plan_.cpu().cached_columns.empty()) m_.set(group_, address(offsetof(RowsTask, partials)));
    m_.set(rows_left_, number(offsetof(RowsTask, rows)));
    const auto tail = static_cast<int>(plan_.spec.cols % m_.unit_columns());
    if (plan_.spec.group_columns() > 0) {
        m_.set_tail(1);  // rows consist of whole units, but a group has only one element
    } else if (tail > 0) {
        m_.set_tail(tail);
    }
}

/// Computes how many rows this block has, and how far away the next block's rows are; 0 after the last block.
void RowLoops::begin_block() {
    const Integer rows = m_.temporary(), most = row_, ahead = column_;
    m_.set(rows, rows_left_);
    m_.set(most, cpu_.row_block);
    m_.set(ahead, 0);
    const Condition has_next = m_.compare(rows, Relation::greater, most);
    m_.set_if(has_next, rows, most);
    m_.set_if(has_next, ahead, most);
    m_.set(block_rows_, rows);
    m_.set(rows_ahead_, ahead);
    segments_.begin_block(rows_ahead_);
}

/// Returns a condition that is true while rows are left.
Condition RowLoops::leave_block() {
    for (const Operand& operand : plan_.operands) {
        const Tensor tensor = operand.tensor;
        if (!operand.axes.row) continue;
        if (is_staged(tensor)) {
            m_.add_product(block_[tensor], block_rows_, staged_stride_);
        } else if (operand.is_matrix()) {
            m_.add_product(block_[tensor], stride(tensor), cpu_.row_block);
        } else {
            m_.add(block_[tensor], cpu_.row_block * plan_.operands.of(tensor).bytes());
        }
    }
    segments_.leave_block();
    return m_.count_down(rows_left_, cpu_.row_block);
}

void RowLoops::if_it_ends(const Emit& then, const Emit& otherwise) {
    const Field ends = number(offsetof(SweepTask, ends));
    m_.if_else("last", [&] { return m_.compare(ends, Relation::not_equal, 0); }, then, otherwise);
}

void RowLoops::in_first_range(const Emit& body) {
    const Field begin = number(offsetof(SweepTask, column_begin));
    m_.if_else("first_part", [&] { return m_.compare(begin, Relation::equal, 0); }, body);
}

void RowLoops::write_range_sums(int64_t mean, Vector sums) {
    const int64_t vector_bytes = plan_.geometry.cpu.part_sums_bytes(m_.element_bytes());
    m_.set(m_.temporary(), address(offsetof(SweepTask, own_sums)));
    m_.write_rows({m_.temporary(), row_, m_.element_bytes(), mean * plan_.geometry.cpu.column_ranges * vector_bytes},
                  sums);
}

Accumulator RowLoops::add_range_sums(int64_t mean, Registers& registers, Reduction reduction) {
    const int64_t vector_bytes = plan_.geometry.cpu.part_sums_bytes(m_.element_bytes());
    const int64_t mean_bytes = plan_.geometry.cpu.column_ranges * vector_bytes;
    const Integer range = m_.temporary(), end = column_;
    const Accumulator sum = m_.accumulator(registers);
    m_.set(range, address(offsetof(SweepTask, sums)));
    m_.set_to_address(range, {range, row_, m_.element_bytes(), mean * mean_bytes});
    m_.set(sum, m_.read_rows(m_.value_of(sum), {range}));
    if (plan_.geometry.cpu.column_ranges == 1) return sum;
    m_.set_to_address(end, {range, {}, 1, mean_bytes});
    m_.add(range, vector_bytes);
    m_.repeat_short("range", [&] {
        if (reduction == Reduction::sum) {
            m_.add(sum, {range});
        } else {
            m_.add_larger(sum, m_.read_rows(registers.take(), {range}), Lanes::all, 0);
        }
        m_.add(range, vector_bytes);
        return m_.compare(range, Relation::below, end);
    });
    return sum;
}

void RowLoops::for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& next_rows,
                            const Emit& body) {
    for (const Tensor tensor : matrices) m_.set(pointer_[tensor], block_[tensor]);
    for (const Tensor tensor : next_rows) m_.set_to_row(next_[tensor], block_[tensor], rows_ahead_, stride(tensor));
    if (caches_elements()) m_.set_to_address(cached_, {m_.frame(), {}, 1, cached_at_});
    m_.set(row_, 0);
    m_.repeat("row", [&] {
        body();
        if (caches_elements()) m_.add(cached_, cached_row_bytes(plan_));
        for (const Tensor tensor : matrices) m_.add(pointer_[tensor], row_stride(tensor));
        for (const Tensor tensor : next_rows) m_.add(next_[tensor], stride(tensor));
        m_.add(row_, 1);
        return m_.compare(row_, Relation::less, block_rows_);
    });
}

void RowLoops::for_each_rows(const Emit& body) {
    const auto rows = [&] {
        m_.set_rows(row_, block_rows_);
        body();
    };
    m_.set(row_, 0);
    if (cpu_.row_block <= m_.rows_at_once()) return rows();
    m_.repeat("rows", [&] {
        rows();
        m_.add(row_, m_.rows_at_once());
        return m_.compare(row_, Relation::less, block_rows_);
    });
}

/// Ranges begin at whole steps. The last range has the rest of the row.
void RowLoops::for_each_columns_of_range(int width, const ColumnsBody& body, const std::optional<Stage>& stage) {
    const int64_t whole_columns = whole_steps(width) * width * m_.unit_columns();
    const Field end_of_part = number(offsetof(SweepTask, column_end));
    const Integer end = m_.temporary();
    m_.set(end, whole_columns);
    m_.set_if(m_.compare(end, Relation::greater, end_of_part), end, end_of_part);
    m_.set(end_, end);
    m_.set(column_, number(offsetof(SweepTask, column_begin)));
    const auto is_inside = [&] { return m_.compare(column_, Relation::less, end_); };
    m_.repeat_while(stage ? "stages" : "columns", is_inside, [&] { advance(width, end_, body, stage); });
    const std::vector<Columns> rest = rest_of_row(width);
    if (rest.empty()) return;
    const auto is_last = [&] { return m_.compare(end_of_part, Relation::not_less, plan_.spec.cols); };
    m_.if_else("rest", is_last, [&] {
        m_.assume_equal(column_, whole_columns);
        body(rest);
    });
}

void RowLoops::one_step(int width, const ColumnsBody& body) {
    body(units(width, false));
    m_.add(column_, width * m_.unit_columns());
}

/// Emits body(units) for one step. With stages, repeats it for the next stage, or to `end` if that is nearer.
void RowLoops::advance(int width, const Amount& end, const ColumnsBody& body, const std::optional<Stage>& stage) {
    if (!stage) return one_step(width, body);
    const Integer stage_end = m_.temporary();
    m_.set(stage_end, column_);
    m_.add(stage_end, stage->steps * width * m_.unit_columns());
    m_.set(stage_end_, stage_end);
    m_.set(stage_end, end);
    m_.set_if(m_.compare(stage_end, Relation::greater, stage_end_), stage_end, stage_end_);
    m_.set(stage_end_, stage_end);
    m_.repeat("columns", [&] {
        one_step(width, body);
        return m_.compare(column_, Relation::less, stage_end_);
    });
    stage->end();
}

void RowLoops::for_each_columns(int width, const ColumnsBody& body, const std::optional<Stage>& stage) {
    if (extent_ == Extent::column_range) return for_each_columns_of_range(width, body, stage);
    const int64_t steps = whole_steps(width);
    const int64_t whole_columns = steps * width * m_.unit_columns();
    const auto whole = [&] {
        advance(width, whole_columns, body, stage);
        return m_.compare(column_, Relation::less, whole_columns);
    };
    m_.set(column_, 0);
    if (steps == 1) whole();
    if (steps > 1) m_.repeat(stage ? "stages" : "columns", whole);
    m_.assume_equal(column_, whole_columns);
    const std::vector<Columns> rest = rest_of_row(width);
    if (!rest.empty()) body(rest);
}

std::vector<Columns> RowLoops::rest_of_row(int width) const {
    const int64_t whole = plan_.spec.cols / m_.unit_columns();
    return units(static_cast<int>(whole % width), plan_.spec.cols % m_.unit_columns() > 0);
}

std::vector<Columns> RowLoops::units(int whole, bool tail) const {
    std::vector<Columns> all;
    for (int u = 0; u < whole; ++u) all.push_back({u * m_.unit_columns(), Lanes::all});
    if (tail) all.push_back({whole * m_.unit_columns(), Lanes::tail});
    return all;
}

void RowLoops::prefetch(const std::vector<Tensor>& ahead, const std::vector<Columns>& columns, Block block) {
    const bool own_row = fetches_own_row(cpu_);
    for (const Tensor tensor : ahead) {
        const int64_t size = plan_.operands.of(tensor).bytes();
        const int64_t bytes = static_cast<int64_t>(columns.size()) * m_.unit_columns() * size;
        const Integer row = !own_row || block == Block::next ? next_[tensor] : pointer_[tensor];
        for (int64_t line = 0; line < bytes; line += line_bytes) {
            const int64_t offset = line + (own_row ? row_ahead_bytes : 0);
            m_.prefetch({row, column_, static_cast<int>(size), offset}, fetches_into_l1(cpu_));
        }
    }
}

}  // namespace normjit::backend::cpu
