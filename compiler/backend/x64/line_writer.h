// SPDX-License-Identifier: Apache-2.0
// Rows that do not fill lines, written past the caches in whole lines: rows that stand one behind the other, wherever
// the first starts, and rows with gaps between them that all start on lines.
#pragma once

#include "backend/cpu/line_writer.h"
#include "backend/x64/machine.h"

#include "normjit/operand.h"
#include "normjit/schedule.h"

namespace normjit::backend::x64 {

/// Between a row group's arithmetic and its rows in memory stand some lines of the stack, in the phase of memory: a
/// block of rows goes there, full lines go on to memory, and the bytes of the last one wait for the next block.
///
///     line:  vmovdqa64 zmm31, [rsp + rsi + lines]
///            vmovntdq  [rcx + rsi], zmm31
///            add rsi, 64
///            lea rax, [rsi + 64];  cmp rax, rdx;  jle line
///
/// The group's first and last line are its neighbours' too: of those it writes its own bytes, through the caches. So it
/// does with the last line of each row where there are gaps; rows then start on lines on the stack, too.
/// Everything here overwrites rax, rcx, rdx and rsi.
class LineWriter final : public cpu::LineWriter {
  public:
    /// Takes frame_bytes() at rsp + `frame_at`, a multiple of 64.
    LineWriter(XbyakMachine& machine, Assembler& assembler, int frame_at, int64_t cols, const Operand& matrix,
               const CpuSchedule& cpu);
    static int64_t frame_bytes(int64_t cols, const Operand& matrix, const CpuSchedule& cpu);

    /// Not 0 where the function starts; with 0 everything here does nothing.
    static Xbyak::Reg64 used() { return Xbyak::util::rsi; }

    void begin(Integer next, Integer stride) override;
    void write_lines(Integer next) override { write_lines(m_.in_frame(next)); }
    void finish(Integer next) override { finish(m_.in_frame(next)); }

  private:
    enum Way { unused, without_gaps, with_gaps };

    void write_lines(const Xbyak::Address& next);
    void finish(const Xbyak::Address& next);
    void write_full_lines(const Xbyak::Address& next);
    void write_rows(const Xbyak::Address& next);
    void find_filled(const Xbyak::Address& next);
    int fields_at() const { return lines_bytes_; }
    Xbyak::RegExp lines() const { return a_.rsp + static_cast<size_t>(frame_at_); }
    Xbyak::Address field(int number) { return a_.qword[lines() + static_cast<size_t>(fields_at() + 8 * number)]; }
    Xbyak::Address line_in_memory() { return field(0); }  ///< where the first line on the stack belongs
    Xbyak::Address foreign_bytes() { return field(1); }   ///< that this line starts with, until it is written
    Xbyak::Address way() { return field(2); }
    Xbyak::Address gap() { return field(3); }  ///< in memory, from a row's last line to the next row

    const Xbyak::Reg64 scratch_{Xbyak::Operand::RAX};
    const Xbyak::Reg64 memory_{Xbyak::Operand::RCX};
    const Xbyak::Reg64 filled_{Xbyak::Operand::RDX};  ///< bytes on the stack
    const Xbyak::Reg64 at_{Xbyak::Operand::RSI};

    XbyakMachine& m_;
    Assembler& a_;
    const int frame_at_;
    const int row_bytes_;
    const int stack_row_bytes_;
    const int lines_bytes_;
};

}  // namespace normjit::backend::x64
