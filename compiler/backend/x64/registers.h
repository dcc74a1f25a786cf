// SPDX-License-Identifier: Apache-2.0
// The vector and mask registers of generated code: which ones hold values, and which the assembler reserves.
#pragma once

#include <array>

#include <xbyak/xbyak.h>

namespace normjit::backend::x64 {

/// The vectors of a unit; vectors[1] is only used with Packing::even_odd.
struct Zmms {
    std::array<Xbyak::Zmm, 2> vectors;
};

/// Reserves registers 30 and 31 for short-lived copies. Registers 0 to 29 hold values; the last of them may hold
/// tables.
class ReservedRegisters {
  public:
    static constexpr int value_registers = 30;
    static Xbyak::Zmm copy() { return Xbyak::Zmm(30); }

  protected:
    static Xbyak::Zmm scratch() { return Xbyak::Zmm(31); }
    // Masks for the tail: for columns in memory order (first and second half of the unit), and for the unit's even and
    // odd registers.
    static Xbyak::Opmask tail_mask() { return Xbyak::Opmask(1); }
    static Xbyak::Opmask second_half_mask() { return Xbyak::Opmask(2); }
    static Xbyak::Opmask vector_mask(int v) { return Xbyak::Opmask(3 + v); }
    static Xbyak::Opmask rows_mask() { return Xbyak::Opmask(7); }
    static Xbyak::Opmask scratch_mask() { return Xbyak::Opmask(5); }
    static Xbyak::Opmask scratch_mask2() { return Xbyak::Opmask(6); }
};

}  // namespace normjit::backend::x64
