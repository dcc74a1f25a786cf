// SPDX-License-Identifier: Apache-2.0
// The registers of generated code that hold values or arguments, and those that the assembler reserves.
#pragma once

#include <array>

#include <xbyak/xbyak.h>

namespace normjit::backend::x64 {

/// The vectors of a unit; vectors[1] is only used with Packing::even_odd.
struct Zmms {
    std::array<Xbyak::Zmm, 2> vectors;
};

/// On entry to a function, this is not 0 if rows go past the caches by way of the frame: see nontemporal_staging.h.
inline Xbyak::Reg64 second_argument() { return Xbyak::util::rsi; }

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
