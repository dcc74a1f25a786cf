// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/loops.h"

#include "normjit/cpu_abi.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace normjit::backend::x64 {

using Xbyak::Label;
using Xbyak::Reg64;
using Xbyak::RegExp;

int64_t kept_row_bytes(const plan::Plan& plan) {
    const auto element = static_cast<int64_t>(size_of(plan.function.compute));
    return static_cast<int64_t>(plan.kept_elements.size()) * plan.geometry.partial_cols * element;
}

namespace {

constexpr int register_bytes = 64;

}  // namespace

RowLoops::RowLoops(Assembler& assembler, const plan::Plan& plan, Caching caching, Extent extent)
    : a_(assembler),
      plan_(plan),
      cpu_(std::get<CpuSchedule>(plan.schedule.device)),
      caching_(caching),
      extent_(extent) {
    assign_registers();
    size_t most_sums = 0;
    for (const plan::Sweep& sweep : plan.sweeps) most_sums = std::max(most_sums, sweep.row_means.size());
    sums_at_ = (1 + cpu_.overlap) * slots_bytes();
    pointers_at_ = sums_at_ + static_cast<int>(most_sums) * slot_rows() * register_bytes;
    block_rows_at_ = pointers_at_ + static_cast<int>(tensor_count) * 8;
    rows_left_at_ = block_rows_at_ + 8;
    rows_ahead_at_ = rows_left_at_ + 8;
    first_block_at_ = rows_ahead_at_ + 8;
    end_at_ = first_block_at_ + 8;
    dx_stride_at_ = end_at_ + 8;
    kept_at_ = (dx_stride_at_ + 8 + register_bytes - 1) / register_bytes * register_bytes;
    frame_bytes_ = kept_at_ + cpu_.row_block * static_cast<int>(kept_row_bytes(plan));
    if (caching != Caching::realign) return;
    dx_lines_.emplace(a_, frame_bytes_, plan.spec, cpu_);
    frame_bytes_ += dx_lines_->frame_bytes();
}

void RowLoops::assign_registers() {
    std::vector<int> free = {Xbyak::Operand::R8,  Xbyak::Operand::R9,  Xbyak::Operand::R10, Xbyak::Operand::R11,
                             Xbyak::Operand::RBX, Xbyak::Operand::RBP, Xbyak::Operand::R12, Xbyak::Operand::R13,
                             Xbyak::Operand::R15, Xbyak::Operand::RCX};
    const auto take = [&] {
        const int reg = free.front();
        free.erase(free.begin());
        return reg;
    };
    for (const Tensor tensor : all_tensors) {
        const TensorShape shape = info(tensor).shape;
        const bool in_loops = shape == TensorShape::matrix || (shape == TensorShape::cols && !is_output(tensor));
        if (uses(tensor) && in_loops) pointer_register_[tensor] = take();
    }
    if (keeps_elements()) kept_register_ = take();
    if (cpu_.overlap == 1) {
        for (const Tensor tensor : matrices(plan_.function, plan_.sweeps.front())) next_register_[tensor] = take();
    }
    if (cpu_.overlap == 1 || fetches_own_row(cpu_)) return;
    size_t most = 0;
    for (const plan::Sweep& sweep : plan_.sweeps) most = std::max(most, sweep.ahead.size());
    std::vector<int> next;
    while (next.size() < most) next.push_back(take());
    for (const plan::Sweep& sweep : plan_.sweeps) {
        for (size_t i = 0; i < sweep.ahead.size(); ++i) next_register_[sweep.ahead[i]] = next[i];
    }
}

bool RowLoops::uses(Tensor tensor) const {
    const auto reads = [&](const ir::Value& value) { return value.op == ir::Op::input && value.tensor == tensor; };
    const auto writes = [&](const ir::Output& output) { return output.tensor == tensor; };
    const ir::Function& function = plan_.function;
    return std::any_of(function.values.begin(), function.values.end(), reads) ||
           std::any_of(function.outputs.begin(), function.outputs.end(), writes);
}

Xbyak::Address RowLoops::block_pointer(Tensor tensor) {
    return in_frame(pointers_at_ + static_cast<int>(index(tensor)) * 8);
}

Xbyak::Address RowLoops::task_data(Tensor tensor) {
    return a_.qword[task_ + offsetof(RowsTask, data) + index(tensor) * sizeof(void*)];
}

Xbyak::Address RowLoops::task_stride(Tensor tensor) {
    return a_.qword[task_ + offsetof(RowsTask, stride) + index(tensor) * sizeof(int64_t)];
}

Xbyak::Address RowLoops::row_stride(Tensor tensor) {
    return dx_lines_ && tensor == Tensor::dx ? in_frame(dx_stride_at_) : task_stride(tensor);
}

bool RowLoops::has_slot(ValueId id) const {
    return std::find(plan_.row_slots.begin(), plan_.row_slots.end(), id) != plan_.row_slots.end();
}

RegExp RowLoops::slot(ValueId id, Block block) const {
    const auto found = std::find(plan_.row_slots.begin(), plan_.row_slots.end(), id) - plan_.row_slots.begin();
    const auto first = found * slot_rows() * a_.element_bytes() + (block == Block::next ? slots_bytes() : 0);
    return a_.rsp + row_ * a_.element_bytes() + static_cast<size_t>(first);
}

Xbyak::Address RowLoops::kept_element(int64_t elements) {
    return a_.ptr[kept() + column_ * a_.element_bytes() + static_cast<size_t>(elements * a_.element_bytes())];
}

Xbyak::Address RowLoops::partial(int64_t elements) {
    return a_.ptr[partials_ + column_ * a_.element_bytes() + static_cast<size_t>(elements * a_.element_bytes())];
}

void RowLoops::load_row_input(const Xbyak::Zmm& to, Tensor tensor, Block block) {
    const DType dtype = *plan_.function.dtypes[tensor];
    a_.mov(scratch_, block_pointer(tensor));
    if (block == Block::next) a_.add(scratch_, cpu_.row_block * static_cast<int>(size_of(dtype)));
    a_.load_rows(to, scratch_, row_, dtype);
}

void RowLoops::keep_sums(const std::vector<Xbyak::Zmm>& sums) {
    find_sums();
    for (size_t k = 0; k < sums.size(); ++k) a_.move_out(kept_sum(k, 0), sums[k]);
}

void RowLoops::keep_zeros(size_t count) {
    const Xbyak::Zmm zero(0);
    a_.zero(zero);
    a_.xor_(row_, row_);
    Label row;
    a_.L(row);
    keep_sums(std::vector<Xbyak::Zmm>(count, zero));
    a_.inc(row_);
    a_.cmp(row_, cpu_.row_block);
    a_.jl(row);
}

void RowLoops::find_sums() {
    a_.mov(scratch_, row_);
    a_.shl(scratch_, std::countr_zero(static_cast<unsigned>(register_bytes)));
}

Xbyak::Address RowLoops::kept_sum(size_t sum, int row) {
    const int at = sums_at_ + (static_cast<int>(sum) * slot_rows() + row) * register_bytes;
    return a_.ptr[a_.rsp + scratch_ + static_cast<size_t>(at)];
}

void RowLoops::for_each_block(const std::function<void()>& begin, const std::function<void()>& body) {
    Frame frame(a_, frame_bytes_);
    begin_group();
    begin();
    Label block;
    a_.L(block);
    begin_block();
    body();
    leave_block();
    a_.jg(block, a_.T_NEAR);
    end();
    frame.leave();
}

void RowLoops::while_next_is_full(const std::function<void()>& body) {
    Label again, done;
    a_.L(again);
    a_.cmp(in_frame(rows_left_at_), 2 * cpu_.row_block);
    a_.jl(done, a_.T_NEAR);
    body();
    a_.jmp(again, a_.T_NEAR);
    a_.L(done);
}

void RowLoops::go_to_next_block() {
    leave_block();
    begin_block();
}

void RowLoops::in_block(const std::function<void()>& body) {
    Frame frame(a_, frame_bytes_);
    begin_group();
    begin_block();
    body();
    end();
    frame.leave();
}

void RowLoops::write_lines() {
    if (dx_lines_) dx_lines_->write_lines(block_pointer(Tensor::dx));
}

void RowLoops::end() {
    if (dx_lines_) dx_lines_->finish(block_pointer(Tensor::dx));
    if (caching_ == Caching::stream) a_.sfence();
}

void RowLoops::begin_group() {
    for (const Tensor tensor : all_tensors) {
        if (!uses(tensor)) continue;
        if (info(tensor).shape != TensorShape::cols) {
            a_.mov(scratch_, task_data(tensor));
            a_.mov(block_pointer(tensor), scratch_);
        } else if (!is_output(tensor)) {
            a_.mov(pointer(tensor), task_data(tensor));
        }
    }
    if (dx_lines_) {
        a_.mov(scratch_, task_stride(Tensor::dx));
        a_.mov(row_stride(Tensor::dx), scratch_);
        dx_lines_->begin(realigns(), block_pointer(Tensor::dx), row_stride(Tensor::dx));
    }
    a_.mov(partials_, a_.qword[task_ + offsetof(RowsTask, partials)]);
    a_.mov(scratch_, a_.qword[task_ + offsetof(RowsTask, rows)]);
    a_.mov(in_frame(rows_left_at_), scratch_);
    if (extent_ == Extent::part) {
        a_.mov(scratch_, sweep_task(offsetof(SweepTask, starts)));
        a_.mov(in_frame(first_block_at_), scratch_);
    } else {
        a_.mov(in_frame(first_block_at_), 1);
    }
    if (const auto tail = static_cast<int>(plan_.spec.cols % a_.unit_columns())) a_.set_tail(tail);
}

void RowLoops::begin_block() {
    a_.mov(scratch_, in_frame(rows_left_at_));
    a_.mov(row_, cpu_.row_block);
    a_.xor_(column_, column_);
    a_.cmp(scratch_, row_);
    a_.cmovg(scratch_, row_);
    a_.cmovg(column_, row_);
    a_.mov(in_frame(block_rows_at_), scratch_);
    a_.mov(in_frame(rows_ahead_at_), column_);
}

/// The flags say how many rows are left.
void RowLoops::leave_block() {
    for (const Tensor tensor : all_tensors) {
        if (!uses(tensor) || info(tensor).shape == TensorShape::cols) continue;
        if (tensor == Tensor::dx && dx_lines_) {
            a_.mov(scratch_, in_frame(block_rows_at_));
            a_.imul(scratch_, row_stride(tensor));
        } else if (is_matrix(tensor)) {
            a_.imul(scratch_, task_stride(tensor), cpu_.row_block);
        } else {
            a_.mov(scratch_, cpu_.row_block * static_cast<int>(size_of(*plan_.function.dtypes[tensor])));
        }
        a_.add(block_pointer(tensor), scratch_);
    }
    a_.mov(in_frame(first_block_at_), 0);
    a_.sub(in_frame(rows_left_at_), cpu_.row_block);
}

void RowLoops::jump_if_first_block(const Label& label) {
    a_.cmp(in_frame(first_block_at_), 0);
    a_.jne(label, a_.T_NEAR);
}

void RowLoops::jump_unless_it_ends(const Label& label) {
    a_.cmp(sweep_task(offsetof(SweepTask, ends)), 0);
    a_.je(label, a_.T_NEAR);
}

Place RowLoops::output_place(Tensor tensor, const Columns& columns) {
    a_.mov(scratch_, task_data(tensor));
    return {scratch_, column_, columns.elements};
}

void RowLoops::write_part_sums(int64_t mean, const Xbyak::Zmm& sums) {
    const int64_t vector_bytes = plan_.geometry.part_sums_bytes(a_.element_bytes());
    a_.mov(scratch_, sweep_task(offsetof(SweepTask, own_sums)));
    const auto at = static_cast<size_t>(mean * plan_.geometry.column_parts * vector_bytes);
    a_.move_out(a_.ptr[scratch_ + row_ * a_.element_bytes() + at], sums);
}

void RowLoops::add_part_sums(int64_t mean, const Xbyak::Zmm& to) {
    const int64_t vector_bytes = plan_.geometry.part_sums_bytes(a_.element_bytes());
    const int64_t mean_bytes = plan_.geometry.column_parts * vector_bytes;
    a_.mov(scratch_, sweep_task(offsetof(SweepTask, sums)));
    a_.lea(scratch_, a_.ptr[scratch_ + row_ * a_.element_bytes() + static_cast<size_t>(mean * mean_bytes)]);
    a_.move(to, a_.ptr[scratch_]);
    if (plan_.geometry.column_parts == 1) return;
    a_.lea(column_, a_.ptr[scratch_ + static_cast<size_t>(mean_bytes)]);
    a_.add(scratch_, static_cast<uint32_t>(vector_bytes));
    Label part;
    a_.L(part);
    a_.add(to, to, a_.ptr[scratch_]);
    a_.add(scratch_, static_cast<uint32_t>(vector_bytes));
    a_.cmp(scratch_, column_);
    a_.jb(part);
}

void RowLoops::for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& next_rows,
                            const std::function<void()>& body) {
    for (const Tensor tensor : matrices) a_.mov(pointer(tensor), block_pointer(tensor));
    for (const Tensor tensor : next_rows) {
        a_.mov(next(tensor), in_frame(rows_ahead_at_));
        a_.imul(next(tensor), task_stride(tensor));
        a_.add(next(tensor), block_pointer(tensor));
    }
    if (keeps_elements()) a_.lea(kept(), a_.ptr[a_.rsp + kept_at_]);
    a_.xor_(row_, row_);
    Label row;
    a_.L(row);
    body();
    if (keeps_elements()) a_.add(kept(), static_cast<int>(kept_row_bytes(plan_)));
    for (const Tensor tensor : matrices) a_.add(pointer(tensor), row_stride(tensor));
    for (const Tensor tensor : next_rows) a_.add(next(tensor), task_stride(tensor));
    a_.inc(row_);
    a_.cmp(row_, in_frame(block_rows_at_));
    a_.jl(row, a_.T_NEAR);
}

void RowLoops::for_each_rows(const std::function<void()>& body) {
    a_.xor_(row_, row_);
    Label rows;
    a_.L(rows);
    a_.mov(scratch_, in_frame(block_rows_at_));
    a_.sub(scratch_, row_);
    a_.set_rows(scratch_);
    body();
    if (cpu_.row_block <= a_.lanes()) return;
    a_.add(row_, a_.lanes());
    a_.cmp(row_, in_frame(block_rows_at_));
    a_.jl(rows, a_.T_NEAR);
}

/// Parts begin at whole steps; the last one has what is left of the row after those.
void RowLoops::for_each_columns_of_part(int width, const std::function<void(const std::vector<Columns>&)>& body) {
    const int step_columns = width * a_.unit_columns();
    const auto whole_columns = static_cast<uint32_t>(whole_steps(width) * step_columns);
    Label step, end, done;
    a_.mov(scratch_, whole_columns);
    a_.cmp(scratch_, sweep_task(offsetof(SweepTask, column_end)));
    a_.cmovg(scratch_, sweep_task(offsetof(SweepTask, column_end)));
    a_.mov(in_frame(end_at_), scratch_);
    a_.mov(column_, sweep_task(offsetof(SweepTask, column_begin)));
    a_.L(step);
    a_.cmp(column_, in_frame(end_at_));
    a_.jge(end, a_.T_NEAR);
    body(units(width, false));
    a_.add(column_, step_columns);
    a_.jmp(step, a_.T_NEAR);
    a_.L(end);
    const std::vector<Columns> rest = rest_of_row(width);
    if (rest.empty()) return;
    a_.cmp(sweep_task(offsetof(SweepTask, column_end)), static_cast<uint32_t>(plan_.spec.cols));
    a_.jl(done, a_.T_NEAR);
    body(rest);
    a_.L(done);
}

void RowLoops::for_each_columns(int width, const std::function<void(const std::vector<Columns>&)>& body) {
    if (extent_ == Extent::part) return for_each_columns_of_part(width, body);
    const int64_t steps = whole_steps(width);
    const int step_columns = width * a_.unit_columns();
    a_.xor_(column_, column_);
    if (steps > 0) {
        Label step;
        a_.L(step);
        body(units(width, false));
        a_.add(column_, step_columns);
        a_.cmp(column_, static_cast<uint32_t>(steps * step_columns));  // N is below 2^31
        if (steps > 1) a_.jl(step, a_.T_NEAR);
    }
    const std::vector<Columns> rest = rest_of_row(width);
    if (!rest.empty()) body(rest);
}

std::vector<Columns> RowLoops::rest_of_row(int width) const {
    const int64_t whole = plan_.spec.cols / a_.unit_columns();
    return units(static_cast<int>(whole % width), plan_.spec.cols % a_.unit_columns() > 0);
}

std::vector<Columns> RowLoops::units(int whole, bool tail) const {
    std::vector<Columns> all;
    for (int u = 0; u < whole; ++u) all.push_back({u * a_.unit_columns(), Lanes::all});
    if (tail) all.push_back({whole * a_.unit_columns(), Lanes::tail});
    return all;
}

void RowLoops::prefetch(const std::vector<Tensor>& ahead, const std::vector<Columns>& columns, Block block) {
    const bool own_row = fetches_own_row(cpu_);
    for (const Tensor tensor : ahead) {
        const auto size = static_cast<int>(size_of(*plan_.function.dtypes[tensor]));
        const auto bytes = static_cast<int>(columns.size()) * a_.unit_columns() * size;
        for (int line = 0; line < bytes; line += 64) {
            const int offset = line + (own_row ? row_ahead_bytes : 0);
            const bool in_next = !own_row || block == Block::next;
            const Xbyak::RegExp at = (in_next ? next(tensor) : pointer(tensor)) + column_ * size;
            fetches_into_l1(cpu_) ? a_.prefetcht0(a_.ptr[at + static_cast<size_t>(offset)])
                                  : a_.prefetcht1(a_.ptr[at + static_cast<size_t>(offset)]);
        }
    }
}

}  // namespace normjit::backend::x64
