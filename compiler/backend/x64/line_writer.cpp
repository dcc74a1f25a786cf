// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/line_writer.h"

#include "normjit/realign.h"

namespace normjit::backend::x64 {

using Xbyak::Address;
using Xbyak::Label;
using Xbyak::Reg64;

namespace {

constexpr int line_bytes = 64;

}  // namespace

LineWriter::LineWriter(XbyakMachine& machine, Assembler& assembler, int frame_at, int64_t cols, const Operand& matrix,
                       const CpuSchedule& cpu)
    : m_(machine),
      a_(assembler),
      frame_at_(frame_at),
      row_bytes_(static_cast<int>(cols * matrix.bytes())),
      stack_row_bytes_(static_cast<int>(normjit::stack_row_bytes(cols, matrix))),
      lines_bytes_(static_cast<int>(normjit::stack_bytes(cols, matrix, cpu)) + line_bytes) {}

int64_t LineWriter::frame_bytes(int64_t cols, const Operand& matrix, const CpuSchedule& cpu) {
    return normjit::stack_bytes(cols, matrix, cpu) + line_bytes + 32;
}

void LineWriter::begin(Integer next_row, Integer row_stride) {
    const Address next = m_.in_frame(next_row), stride = m_.in_frame(row_stride);
    Label ready;
    a_.mov(way(), used());
    a_.test(used(), used());
    a_.jz(ready, a_.T_NEAR);
    a_.mov(scratch_, next);
    a_.mov(memory_, scratch_);
    a_.and_(memory_, -line_bytes);
    a_.sub(scratch_, memory_);
    a_.mov(line_in_memory(), memory_);
    a_.mov(foreign_bytes(), scratch_);
    a_.lea(scratch_, a_.ptr[lines() + scratch_]);
    a_.mov(next, scratch_);
    a_.mov(scratch_, stride);
    a_.cmp(scratch_, row_bytes_);
    a_.je(ready, a_.T_NEAR);
    a_.mov(way(), with_gaps);
    a_.sub(scratch_, stack_row_bytes_);
    a_.mov(gap(), scratch_);
    a_.mov(stride, stack_row_bytes_);
    a_.L(ready);
}

void LineWriter::write_lines(const Address& next) {
    Label rows, written;
    a_.cmp(way(), without_gaps);
    a_.jl(written, a_.T_NEAR);
    a_.jg(rows, a_.T_NEAR);
    write_full_lines(next);
    a_.jmp(written, a_.T_NEAR);
    a_.L(rows);
    write_rows(next);
    a_.L(written);
}

void LineWriter::find_filled(const Address& next) {
    a_.mov(filled_, next);
    a_.lea(scratch_, a_.ptr[lines()]);
    a_.sub(filled_, scratch_);
}

void LineWriter::write_full_lines(const Address& next) {
    Label line, test, waits;
    find_filled(next);
    a_.cmp(filled_, line_bytes);
    a_.jl(waits, a_.T_NEAR);
    a_.mov(memory_, line_in_memory());
    a_.xor_(at_, at_);
    a_.mov(scratch_, foreign_bytes());
    a_.test(scratch_, scratch_);
    a_.jz(line, a_.T_NEAR);
    a_.mov(at_, -1);
    a_.shlx(at_, at_, scratch_);
    a_.copy_bytes_of_line(a_.ptr[memory_], a_.ptr[lines()], at_);
    a_.mov(foreign_bytes(), 0);
    a_.mov(at_, line_bytes);
    a_.jmp(test, a_.T_NEAR);
    a_.L(line);
    a_.copy_line(a_.ptr[memory_ + at_], a_.ptr[lines() + at_], Caching::nontemporal);
    a_.add(at_, line_bytes);
    a_.L(test);
    a_.lea(scratch_, a_.ptr[at_ + line_bytes]);
    a_.cmp(scratch_, filled_);
    a_.jle(line);
    a_.copy_line(a_.ptr[lines()], a_.ptr[lines() + at_], Caching::normal);
    a_.add(memory_, at_);
    a_.mov(line_in_memory(), memory_);
    a_.sub(filled_, at_);
    a_.L(waits);
    a_.lea(scratch_, a_.ptr[lines() + filled_]);
    a_.mov(next, scratch_);
}

/// Each row of the block.
void LineWriter::write_rows(const Address& next) {
    Label row, line, none;
    find_filled(next);
    a_.test(filled_, filled_);
    a_.jz(none, a_.T_NEAR);
    a_.mov(memory_, line_in_memory());
    a_.xor_(at_, at_);
    a_.L(row);
    if (row_bytes_ > line_bytes) {
        a_.mov(scratch_, row_bytes_ / line_bytes);
        a_.L(line);
        a_.copy_line(a_.ptr[memory_], a_.ptr[lines() + at_], Caching::nontemporal);
        a_.add(memory_, line_bytes);
        a_.add(at_, line_bytes);
        a_.dec(scratch_);
        a_.jnz(line);
    }
    a_.mov(scratch_, (uint64_t{1} << row_bytes_ % line_bytes) - 1);
    a_.copy_bytes_of_line(a_.ptr[memory_], a_.ptr[lines() + at_], scratch_);
    a_.add(at_, line_bytes);
    a_.add(memory_, line_bytes);
    a_.add(memory_, gap());
    a_.cmp(at_, filled_);
    a_.jl(row, a_.T_NEAR);
    a_.mov(line_in_memory(), memory_);
    a_.lea(scratch_, a_.ptr[lines()]);
    a_.mov(next, scratch_);
    a_.L(none);
}

void LineWriter::finish(const Address& next) {
    const Reg64 mask = at_;
    Label nothing, written;
    write_lines(next);
    a_.cmp(way(), without_gaps);
    a_.jl(nothing, a_.T_NEAR);
    a_.jg(written, a_.T_NEAR);
    find_filled(next);
    a_.mov(mask, -1);
    a_.bzhi(mask, mask, filled_);
    a_.mov(scratch_, foreign_bytes());
    a_.shrx(mask, mask, scratch_);
    a_.shlx(mask, mask, scratch_);
    a_.test(mask, mask);
    a_.jz(written, a_.T_NEAR);
    a_.mov(memory_, line_in_memory());
    a_.copy_bytes_of_line(a_.ptr[memory_], a_.ptr[lines()], mask);
    a_.L(written);
    a_.sfence();
    a_.L(nothing);
}

}  // namespace normjit::backend::x64
