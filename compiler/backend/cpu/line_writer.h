// SPDX-License-Identifier: Apache-2.0
// Rows that do not fill lines, written past the caches in whole lines: rows that stand one behind the other, wherever
// the first starts, and rows with gaps between them that all start on lines.
//
// Between a row group's arithmetic and its rows in memory stand some lines of the frame, in the phase of memory: a
// block of rows goes there, full lines go on to memory, and the bytes of the last one wait for the next block. On x64:
//
//     line:  vmovdqa64 zmm31, [rsp + rsi + lines];  mov rax, [rsp + memory];  vmovntdq [rax + rsi], zmm31
//            add rsi, 64;  cmp rsi, rdx;  jl line
//
// The group's first and last line are its neighbours' too: of those it writes its own bytes, through the caches. So it
// does with the last line of each row where there are gaps; rows then start on lines in the frame, too.
#pragma once

#include "backend/cpu/machine.h"

namespace normjit::backend::cpu {

class LineWriter {
  public:
    /// Does nothing where the function's second argument is 0. `offset` and `end` are numbers in registers that
    /// everything here overwrites.
    LineWriter(Machine& machine, int64_t cols, const Operand& matrix, const CpuSchedule& cpu, Integer offset,
               Integer end);

    /// The function's second argument is still there. `next` and `stride` hold where the group's rows are in memory,
    /// and from here on where the next row belongs in the frame, and how far the one after it is from there.
    void begin(Integer next, Integer stride);
    /// Full lines go to memory. Best long after the rows came: loads wait for the stores of which they read parts.
    void write_lines(Integer next);
    /// Everything goes to memory.
    void finish(Integer next);

  private:
    void if_used(const char* name, const Machine::Emit& then);
    void write(Integer next);
    void write_full_lines(Integer next);
    void write_rows(Integer next);
    void copy_lines();
    Address lines() const { return {m_.frame(), {}, 1, lines_at_}; }
    Address line() const { return {m_.frame(), offset_, 1, lines_at_}; }  ///< at `offset_`, in the frame
    Address line_in_memory() const { return {memory_, offset_}; }

    Machine& m_;
    const int64_t row_bytes_;
    const int64_t frame_row_bytes_;
    const int64_t lines_at_;
    const Integer offset_, end_;
    const Integer is_used_, has_gaps_;
    const Integer memory_;   ///< where the first line of the frame belongs
    const Integer foreign_;  ///< bytes that this line starts with, until it is written
    const Integer gap_;      ///< in memory, from a row's last line to the next row
    const Integer row_end_;
};

}  // namespace normjit::backend::cpu
