// SPDX-License-Identifier: Apache-2.0
// Xbyak with load(), store() and arithmetic by name, which hide compute type, memory types, packing and tails.
#pragma once

#include "backend/cpu/instruction.h"
#include "backend/cpu/unit.h"

#include "normjit/dtype.h"
#include "normjit/target.h"

#include <array>
#include <map>
#include <memory>
#include <vector>

#include <xbyak/xbyak.h>

namespace normjit::backend::x64 {

using namespace cpu;

/// The vectors of a unit; vectors[1] is only used with Packing::even_odd.
struct Zmms {
    std::array<Xbyak::Zmm, 2> vectors;
};

/// The memory for generated code, a base class so that it exists before Xbyak's generator. It starts at a cache line,
/// rounded up by hand: Xbyak aligns addresses, and the same input must give the same bytes. An aligned allocation would
/// leave a hole that glibc before 2.38 never fills again (bug 14581, NOTES N-208).
class CodeBuffer {
  public:
    static constexpr size_t bytes = 256 << 10;
    uint8_t* start();

  private:
    static constexpr size_t line_bytes = 64;
    std::unique_ptr<uint8_t[]> memory_ = std::make_unique_for_overwrite<uint8_t[]>(bytes + line_bytes - 1);
};

class Assembler : private CodeBuffer, public Xbyak::CodeGenerator {
    using Zmm = Xbyak::Zmm;

  public:
    /// Uses as many as it can of the `spare_registers` last value registers.
    Assembler(DType compute, Packing packing, const Target& target, int spare_registers);

    /// Completes the code with its constants and out-of-line parts, and returns it. Position independent.
    std::vector<uint8_t> finish();

    int lanes() const { return 64 / element_bytes(); }  ///< elements of a register
    int unit_vectors() const { return packing_ == Packing::one ? 1 : 2; }
    int unit_columns() const { return lanes() * unit_vectors(); }
    int element_bytes() const { return static_cast<int>(size_of(compute_)); }
    /// Returns the number of registers, from 0 on, that hold values of the loop nest.
    int free_registers() const { return value_registers - static_cast<int>(kept_.size()); }

    /// Must be emitted where a function starts.
    void load_kept_tables();

    // Memory
    void load(const Zmms& to, const Xbyak::RegExp& from, DType type, Lanes lanes);
    /// `value` is lost.
    void store(const Xbyak::RegExp& to, const Zmms& value, DType type, Lanes lanes, Caching caching);
    /// Loads an element for each of the rows of set_rows(), converted to the compute type.
    void load_rows(const Zmm& to, const Xbyak::RegExp& from, DType type);
    /// Converts and stores an element for each row of set_rows(); `value` is lost.
    void store_rows(const Xbyak::RegExp& place, const Zmm& value, DType type);
    void load_constant(const Zmm& to, double number);
    /// Copy 64 bytes, both aligned to 64; with `mask`, only the bytes whose bit is set.
    void copy_line(const Xbyak::Address& to, const Xbyak::Address& from, Caching caching);
    /// Chooses the bytes of a line to copy, a bit each.
    void set_bytes(const Xbyak::Reg64& mask) { kmovq(scratch_mask(), mask); }
    void copy_bytes(const Xbyak::Address& to, const Xbyak::Address& from);
    /// Copies one element of the compute type to every lane.
    void broadcast(const Zmm& to, const Xbyak::RegExp& from);

    // Arithmetic
    using CodeGenerator::add;  // the general registers' add() must stay visible
    using CodeGenerator::div;
    using CodeGenerator::mul;
    using CodeGenerator::sub;
    void move(const Zmm& to, const Xbyak::Operand& from);
    void move_out(const Xbyak::Address& to, const Zmm& from);
    void zero(const Zmm& to) { vpxord(to, to, to); }
    void add(const Zmm& to, const Zmm& a, const Xbyak::Operand& b);
    void sub(const Zmm& to, const Zmm& a, const Xbyak::Operand& b);
    void mul(const Zmm& to, const Zmm& a, const Xbyak::Operand& b);
    void div(const Zmm& to, const Zmm& a, const Xbyak::Operand& b);
    void div_or_zero(const Zmm& to, const Zmm& a, const Zmm& b);
    void finite_or_zero(const Zmm& to, const Zmm& a);
    void rsqrt(const Zmm& to, const Zmm& a);
    /// Computes an instruction that functions are made of: functions.cpp.
    void function(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b);
    /// to = the larger of a, which must not be negative, and |b|; NaN if either is NaN.
    void larger_magnitude(const Zmm& to, const Zmm& a, const Zmm& b);
    /// Round f32 as a store in the narrower type would.
    void round_bf16(const Zmm& to, const Zmm& a);
    void round_f16(const Zmm& to, const Zmm& a);
    /// to = a * b + c, to = c - a * b, to = a * b - c. `to` may be any of the operands.
    void multiply_add(const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c);
    void negative_multiply_add(const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c);
    void multiply_subtract(const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c);
    /// One step of summing the lanes of many registers, one row each, into one register with a lane for each row. Step
    /// k takes two results of step k - 1 for neighbouring rows (the same one twice if there is no more); fold_steps()
    /// steps make a sum. Overwrites `a`. Always adds in the same order.
    void fold_rows(int step, const Zmm& a, const Zmm& b);
    int fold_steps() const { return compute_ == DType::f64 ? 3 : 4; }

    /// From here on, Lanes::tail means the first `count` columns of a unit.
    void set_tail(int count);
    /// Makes load_rows() and store_rows() mean a register's first `count` rows, if it has as many. `count` is lost.
    void set_rows(const Xbyak::Reg64& count);
    /// Returns the destination of a sum: with Lanes::tail the lanes beyond the row do not change.
    Zmm masked(const Zmm& to, Lanes lanes, int v) const;

    /// Registers 0 to 29 hold values; the spare ones among the last hold tables. 30 is for short-lived copies; all
    /// functions above overwrite both it and 31.
    static constexpr int value_registers = 30;
    static Zmm copy() { return Zmm(30); }

  private:
    enum class Fused { multiply_add, negative_multiply_add, multiply_subtract };
    void fuse(Fused kind, const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c);

    // functions.cpp
    void select_by_size(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b);
    void compare(const Zmm& to, const Zmm& a, const Zmm& b);
    void copy_sign(const Zmm& to, const Zmm& a, const Zmm& b);
    void exponent(const Zmm& to, const Zmm& a);
    Xbyak::Address magnitude_mask();

    // convert.cpp
    enum class Table { even, odd, low, high, words, magnitude, upper };  ///< shuffles and masks: see convert.cpp
    struct OutOfLine {
        Xbyak::Label start;   ///< start of the detour
        Xbyak::Label packed;  ///< where to return if the native conversion was right
        Xbyak::Label done;    ///< where to return with words rounded in integers
        Zmms value;
    };
    void load_register(const Zmm& to, const Xbyak::Address& from, DType type, const Xbyak::Opmask& mask, Lanes lanes);
    void load_bf16_pair(const Zmms& to, const Xbyak::Address& from, Lanes lanes);
    void store_register(const Xbyak::Address& to, const Zmm& value, DType type, const Xbyak::Opmask& mask, Lanes lanes,
                        Caching caching);
    void store_words(const Xbyak::Address& to, const Xbyak::Xmm& words, const Xbyak::Opmask& mask, Lanes lanes,
                     Caching caching);
    Xbyak::Xmm pack_bf16(const Zmms& value);
    void pack_bf16_in_integers(const Zmms& value);
    void emit_detour(OutOfLine& path);
    Xbyak::Xmm words() const;
    void round_to_bf16(const Zmm& value);
    void shuffle(const Zmms& value, Table first, Table second);
    void emit_table(Table table);
    /// Returns the register that keeps the table, or else `scratch` after loading it.
    Zmm table(Table table, const Zmm& scratch);
    Xbyak::Address second_half(const Xbyak::RegExp& place, DType type);
    Xbyak::Address word_constant(uint32_t bits);

    static Zmm scratch() { return Zmm(31); }
    // Masks of the tail: columns in memory order (first and second half of the unit), and its even and odd registers.
    static Xbyak::Opmask tail_mask() { return Xbyak::Opmask(1); }
    static Xbyak::Opmask second_half_mask() { return Xbyak::Opmask(2); }
    static Xbyak::Opmask vector_mask(int v) { return Xbyak::Opmask(3 + v); }
    static Xbyak::Opmask rows_mask() { return Xbyak::Opmask(7); }
    static Xbyak::Opmask scratch_mask() { return Xbyak::Opmask(5); }
    static Xbyak::Opmask scratch_mask2() { return Xbyak::Opmask(6); }

    DType compute_;
    Packing packing_;
    bool native_bf16_;
    std::map<uint64_t, Xbyak::Label> constants_;  ///< by bit pattern, in the width of the compute type
    std::map<uint32_t, Xbyak::Label> words_;
    std::map<Table, Xbyak::Label> tables_;
    std::map<Table, int> kept_;  ///< registers that hold a table throughout
    std::vector<std::unique_ptr<OutOfLine>> detours_;
};

}  // namespace normjit::backend::x64
