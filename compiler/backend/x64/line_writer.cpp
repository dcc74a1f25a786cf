// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/line_writer.h"

namespace normjit::backend::x64 {

using namespace Xbyak;

namespace {

constexpr int line_bytes = 64;

}  // namespace

LineWriter::LineWriter(Assembler& assembler, int frame_at, int64_t block_bytes)
    : a_(assembler),
      frame_at_(frame_at),
      lines_bytes_((line_bytes - 1 + static_cast<int>(block_bytes)) / line_bytes * line_bytes + line_bytes) {}

void LineWriter::begin(const Address& next) {
    a_.mov(a_.rax, next);
    a_.mov(a_.rcx, a_.rax);
    a_.and_(a_.rcx, -line_bytes);
    a_.sub(a_.rax, a_.rcx);
    a_.mov(line_in_memory(), a_.rcx);
    a_.mov(foreign_bytes(), a_.rax);
    a_.lea(a_.rax, a_.ptr[lines() + a_.rax]);
    a_.mov(next, a_.rax);
}

void LineWriter::add_rows(const Address& next, const Address& rows, int64_t row_bytes) {
    a_.imul(a_.rax, rows, static_cast<int>(row_bytes));
    a_.add(next, a_.rax);
}

void LineWriter::write_lines(const Address& next) {
    const Reg64 memory = a_.rcx, at = a_.rsi, end = a_.rdx, scratch = a_.rax;
    Label line, test, waits;
    a_.mov(end, next);
    a_.lea(scratch, a_.ptr[lines()]);
    a_.sub(end, scratch);
    a_.cmp(end, line_bytes);
    a_.jl(waits, a_.T_NEAR);
    a_.mov(memory, line_in_memory());
    a_.xor_(at, at);
    a_.mov(scratch, foreign_bytes());
    a_.test(scratch, scratch);
    a_.jz(line, a_.T_NEAR);
    a_.mov(at, -1);
    a_.shlx(at, at, scratch);
    a_.copy_bytes_of_line(a_.ptr[memory], a_.ptr[lines()], at);
    a_.mov(foreign_bytes(), 0);
    a_.mov(at, line_bytes);
    a_.jmp(test, a_.T_NEAR);
    a_.L(line);
    a_.copy_line(a_.ptr[memory + at], a_.ptr[lines() + at], Caching::stream);
    a_.add(at, line_bytes);
    a_.L(test);
    a_.lea(scratch, a_.ptr[at + line_bytes]);
    a_.cmp(scratch, end);
    a_.jle(line);
    a_.copy_line(a_.ptr[lines()], a_.ptr[lines() + at], Caching::normal);
    a_.add(memory, at);
    a_.mov(line_in_memory(), memory);
    a_.sub(end, at);
    a_.L(waits);
    a_.lea(scratch, a_.ptr[lines() + end]);
    a_.mov(next, scratch);
}

void LineWriter::finish(const Address& next) {
    const Reg64 memory = a_.rcx, mask = a_.rsi, count = a_.rdx, scratch = a_.rax;
    Label nothing;
    write_lines(next);
    a_.mov(count, next);
    a_.lea(scratch, a_.ptr[lines()]);
    a_.sub(count, scratch);
    a_.mov(mask, -1);
    a_.bzhi(mask, mask, count);
    a_.mov(scratch, foreign_bytes());
    a_.shrx(mask, mask, scratch);
    a_.shlx(mask, mask, scratch);
    a_.test(mask, mask);
    a_.jz(nothing, a_.T_NEAR);
    a_.mov(memory, line_in_memory());
    a_.copy_bytes_of_line(a_.ptr[memory], a_.ptr[lines()], mask);
    a_.L(nothing);
}

}  // namespace normjit::backend::x64
