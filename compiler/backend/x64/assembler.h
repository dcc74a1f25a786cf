// SPDX-License-Identifier: Apache-2.0
// Xbyak with load(), store() and arithmetic by name, which hide the compute type, memory types, packing and tails.
#pragma once

#include "backend/cpu/instruction.h"
#include "backend/cpu/unit.h"
#include "backend/x64/code_buffer.h"
#include "backend/x64/registers.h"
#include "support/narrow.h"

#include "normjit/dtype.h"
#include "normjit/target.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <xbyak/xbyak.h>

namespace normjit::backend::x64 {

using namespace cpu;

/// Every function that emits code may overwrite copy(), and the scratch register and masks.
class Assembler : private CodeBuffer, public ReservedRegisters, public Xbyak::CodeGenerator {
    using Zmm = Xbyak::Zmm;

  public:
    /// Keeps tables in as many of the last value registers as is useful, but at most in `spare_registers`.
    Assembler(DType compute, Packing packing, const Target& target, int spare_registers);

    /// Adds constants and out-of-line parts to the code, and returns it. The code is position independent.
    std::vector<uint8_t> finish();

    int lanes() const { return 64 / element_bytes(); }  ///< elements per register
    int unit_vectors() const { return packing_ == Packing::one ? 1 : 2; }
    int unit_columns() const { return lanes() * unit_vectors(); }
    int element_bytes() const { return static_cast<int>(size_of(compute_)); }
    /// Returns how many registers, counted from 0, are free for values of the loop nest.
    int free_registers() const { return value_registers - static_cast<int>(kept_.size()); }

    /// Loads the tables that stay in registers. Must be emitted at the start of a function.
    void load_kept_tables();

    // Memory
    void load(const Zmms& to, const Xbyak::RegExp& from, DType type, Lanes lanes);
    /// Overwrites `value`.
    void store(const Xbyak::RegExp& to, const Zmms& value, DType type, Lanes lanes, Caching caching);
    /// Loads one element for each row that set_rows() selected, converted to the compute type.
    void load_rows(const Zmm& to, const Xbyak::RegExp& from, DType type);
    /// Converts and stores one element for each row that set_rows() selected. Overwrites `value`.
    void store_rows(const Xbyak::RegExp& place, const Zmm& value, DType type);
    void load_constant(const Zmm& to, double number);
    /// Copy 64 bytes, both aligned to 64; with `mask`, only the bytes whose bit is set.
    void copy_line(const Xbyak::Address& to, const Xbyak::Address& from, Caching caching);
    /// Selects the bytes of a line to copy, with one bit for each byte.
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
    /// Computes an instruction whose result is a register: all arithmetic of loop bodies. `to` may be any operand.
    void compute(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c);
    /// to = the larger of a and b; NaN if one is NaN. Masked lanes of `to` do not change.
    void larger(const Zmm& to, const Zmm& a, const Zmm& b);
    /// to = the larger of a, which must not be negative, and |b|; NaN if either is NaN.
    void larger_magnitude(const Zmm& to, const Zmm& a, const Zmm& b);
    /// Does one step of summing the lanes of many registers, each of one row, into one register with a lane for each
    /// row. Step k combines two results of step k - 1 for neighbouring rows (the same one twice if there is no second);
    /// fold_steps() steps make a sum. Overwrites `a`. The order of additions is always the same.
    void fold_rows(int step, const Zmm& a, const Zmm& b, Reduction reduction);
    int fold_steps() const { return compute_ == DType::f64 ? 3 : 4; }

    /// From here on, Lanes::tail means the first `count` columns of a unit.
    void set_tail(int count);
    /// Makes load_rows() and store_rows() use a register's first `count` rows, or all of them if it has fewer.
    /// Overwrites `count`.
    void set_rows(const Xbyak::Reg64& count);
    /// Returns the destination of a sum. With Lanes::tail, lanes beyond the end of the row do not change.
    Zmm masked(const Zmm& to, Lanes lanes, int v) const;

  private:
    /// to = a * b + c, to = c - a * b, or to = a * b - c
    void fuse(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c);
    void div_or_zero(const Zmm& to, const Zmm& a, const Zmm& b);
    void finite_or_zero(const Zmm& to, const Zmm& a);
    void rsqrt(const Zmm& to, const Zmm& a);

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
        Xbyak::Label packed;  ///< where to go back to if the native conversion was right
        Xbyak::Label done;    ///< where to go back to with words that were rounded in integers
        Zmms value;
    };
    void load_register(const Zmm& to, const Xbyak::Address& from, DType type, const Xbyak::Opmask& mask, Lanes lanes);
    void load_8bit(const Zmm& to, const Xbyak::Address& from, DType type, const Xbyak::Opmask& mask, Lanes lanes);
    /// Round to a narrower type, as if the number were f32 and stored.
    void round_bf16(const Zmm& to, const Zmm& a);
    void round_f16(const Zmm& to, const Zmm& a);
    void round_to_8bit(const Zmm& value, const SmallFormat& format);
    void round_to_i8(const Zmm& value);
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
    /// Returns the register that holds the table; if there is none, loads it into `scratch`.
    Zmm table(Table table, const Zmm& scratch);
    Xbyak::Address second_half(const Xbyak::RegExp& place, DType type);
    Xbyak::Address word_constant(uint32_t bits);

    DType compute_;
    Packing packing_;
    bool native_bf16_;
    std::map<uint64_t, Xbyak::Label> constants_;  ///< constants of the compute type, by bit pattern
    std::map<uint32_t, Xbyak::Label> words_;
    std::map<Table, Xbyak::Label> tables_;
    std::map<Table, int> kept_;  ///< registers that always hold a table
    std::vector<std::unique_ptr<OutOfLine>> detours_;
};

}  // namespace normjit::backend::x64
