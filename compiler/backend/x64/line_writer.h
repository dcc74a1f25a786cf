// SPDX-License-Identifier: Apache-2.0
// Rows that stand one behind the other in memory, wherever the first starts, written past the caches in whole lines.
#pragma once

#include "backend/x64/assembler.h"

#include <cstdint>

namespace normjit::backend::x64 {

/// Between a row group's arithmetic and its rows in memory stand some lines of the stack, in the phase of memory: a
/// block of rows goes there, full lines go on to memory, and the bytes of the last one wait for the next block.
///
///     line:  vmovdqa64 zmm31, [rsp + rsi + lines]
///            vmovntdq  [rcx + rsi], zmm31
///            add rsi, 64
///            lea rax, [rsi + 64];  cmp rax, rdx;  jle line
///
/// The group's first and last line are its neighbours' too: of those it writes its own bytes, through the caches.
/// Everything here overwrites rax, rcx, rdx and rsi.
class LineWriter {
  public:
    /// Takes frame_bytes() at rsp + `frame_at`, a multiple of 64, for blocks of at most `block_bytes`.
    LineWriter(Assembler& assembler, int frame_at, int64_t block_bytes);
    int frame_bytes() const { return fields_at() + 16; }

    /// `next` holds where the group's rows start in memory, and from here on where the next row belongs on the stack.
    void begin(const Xbyak::Address& next);
    /// `rows` rows of `row_bytes` are there.
    void add_rows(const Xbyak::Address& next, const Xbyak::Address& rows, int64_t row_bytes);
    /// Full lines go to memory. Best long after the rows came: loads wait for the stores of which they read parts.
    void write_lines(const Xbyak::Address& next);
    /// Everything goes to memory.
    void finish(const Xbyak::Address& next);

  private:
    int fields_at() const { return lines_bytes_; }
    Xbyak::RegExp lines() const { return a_.rsp + static_cast<size_t>(frame_at_); }
    Xbyak::Address field(int number) { return a_.qword[lines() + static_cast<size_t>(fields_at() + 8 * number)]; }
    Xbyak::Address line_in_memory() { return field(0); }  ///< where the first line on the stack belongs
    Xbyak::Address foreign_bytes() { return field(1); }   ///< that this line starts with, until it is written

    Assembler& a_;
    int frame_at_;
    int lines_bytes_;
};

}  // namespace normjit::backend::x64
