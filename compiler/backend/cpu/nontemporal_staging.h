// SPDX-License-Identifier: Apache-2.0
// Stores rows that do not fill cache lines past the caches, in whole lines. Either the rows have no gaps between them,
// and the first may start anywhere, or they have gaps and all start at line boundaries.
//
// A block of rows is first written to some lines of the frame, at the same offset within a line as in memory. Then full
// lines are copied to memory, and the bytes of the last line wait for the next block. On x64:
//
//     line:  vmovdqa64 zmm31, [rsp + rsi + lines];  mov rax, [rsp + memory];  vmovntdq [rax + rsi], zmm31
//            add rsi, 64;  cmp rsi, rdx;  jl line
//
// The group shares its first and last line with its neighbours, so it writes only its own bytes of those, through the
// caches. If there are gaps, the same holds for the last line of each row; rows then start at line boundaries in the
// frame as well.
#pragma once

#include "backend/cpu/machine.h"

namespace normjit::backend::cpu {

class NonTemporalStaging {
  public:
    /// The emitted code does nothing if the function's second argument is 0. All functions here may overwrite the
    /// integers `offset` and `end`, which are in registers.
    NonTemporalStaging(Machine& machine, int64_t cols, const Operand& matrix, const CpuSchedule& cpu, Integer offset,
                       Integer end);

    /// Must be called while the function's second argument is still in place. On entry, `next` and `stride` describe
    /// where the group's rows are in memory; afterwards they describe the frame: where the next row is, and how far the
    /// row after it is from there.
    void begin(Integer next, Integer stride);
    /// Copies full lines to memory. Best called long after the rows were written, because a load waits for stores to
    /// its bytes.
    void write_lines(Integer next);
    /// Copies everything to memory.
    void finish(Integer next);

  private:
    void if_used(const char* name, const Machine::Emit& then);
    void write(Integer next);
    void write_full_lines(Integer next);
    void write_rows(Integer next);
    void copy_lines();
    Address lines() const { return {m_.frame(), {}, 1, lines_at_}; }
    Address line() const { return {m_.frame(), offset_, 1, lines_at_}; }  ///< the line at `offset_` in the frame
    Address line_in_memory() const { return {memory_, offset_}; }

    Machine& m_;
    const int64_t row_bytes_;
    const int64_t frame_row_bytes_;
    const int64_t lines_at_;
    const Integer offset_, end_;
    const Integer is_used_, has_gaps_;
    const Integer memory_;        ///< the place in memory that the first line of the frame goes to
    const Integer shared_bytes_;  ///< bytes at the start of this line that belong to the neighbour, until the line is
                                  ///< written
    const Integer gap_;           ///< the distance in memory from the last line of a row to the next row
    const Integer row_end_;
};

}  // namespace normjit::backend::cpu
