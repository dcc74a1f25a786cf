// SPDX-License-Identifier: Apache-2.0
// Xbyak with the compute type, the memory types and the tail of a row hidden behind load(), store() and arithmetic by
// name.
#pragma once

#include "normjit/dtype.h"
#include "normjit/target.h"

#include <map>
#include <memory>
#include <vector>

#include <xbyak/xbyak.h>

namespace normjit::backend::x64 {

/// Where a row or column vector stands: [base + index * element size + elements * element size].
struct Place {
    Xbyak::Reg64 base;
    Xbyak::Reg64 index;
    int64_t elements = 0;
};

enum class Lanes { all, tail };
enum class Caching { normal, stream };

/// The memory that generated code is written into; a base, so that it exists before Xbyak's generator.
struct CodeBuffer {
    static constexpr size_t bytes = 256 << 10;
    std::vector<uint8_t> memory = std::vector<uint8_t>(bytes);
};

class Assembler : private CodeBuffer, public Xbyak::CodeGenerator {
  public:
    Assembler(DType compute, const Target& target);

    /// Closes the code with its constants and out-of-line parts, and returns it. Position independent.
    std::vector<uint8_t> finish();

    int lanes() const { return 64 / element_bytes(); }
    int element_bytes() const { return static_cast<int>(size_of(compute_)); }

    void load(const Xbyak::Zmm& to, const Place& from, DType type, Lanes lanes);
    /// `value` is lost.
    void store(const Place& to, const Xbyak::Zmm& value, DType type, Lanes lanes, Caching caching);

    /// One element, converted to the compute type, in every lane.
    void load_scalar(const Xbyak::Zmm& to, const Xbyak::Reg64& base, const Xbyak::Reg64& index, DType type);
    void load_constant(const Xbyak::Zmm& to, double number);

    using CodeGenerator::add;  // those of general registers stay visible beside the vector arithmetic
    using CodeGenerator::div;
    using CodeGenerator::mul;
    using CodeGenerator::sub;
    void move(const Xbyak::Zmm& to, const Xbyak::Operand& from);
    void move_out(const Xbyak::Address& to, const Xbyak::Zmm& from);
    void zero(const Xbyak::Zmm& to) { vpxord(to, to, to); }
    void add(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Operand& b);
    void sub(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Operand& b);
    void mul(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Operand& b);
    void div(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Operand& b);
    void div_or_zero(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Zmm& b);
    void rsqrt(const Xbyak::Zmm& to, const Xbyak::Zmm& a);
    /// to = a * b + c, to = c - a * b, to = a * b - c. `to` may be any of the operands.
    void multiply_add(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Zmm& b, const Xbyak::Zmm& c);
    void negative_multiply_add(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Zmm& b, const Xbyak::Zmm& c);
    void multiply_subtract(const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Zmm& b, const Xbyak::Zmm& c);

    /// The sum of all lanes, in every lane; always added in the same order.
    void sum_lanes(const Xbyak::Zmm& value);

    void broadcast(const Xbyak::Zmm& to,
                   const Xbyak::RegExp& from);  ///< one element of the compute type, in every lane
    void store_lane(const Xbyak::RegExp& to, const Xbyak::Zmm& value);

    /// Sets the mask of the last `count` lanes' columns, used by Lanes::tail.
    void set_tail(int count);
    void set_tail(const Xbyak::Reg64& count);

    /// A mask applied to an addition into `to`: with Lanes::tail the lanes beyond the row keep what they hold.
    Xbyak::Zmm masked(const Xbyak::Zmm& to, Lanes lanes) const;

    /// Registers 0 to 29 hold values. 30 is for short-lived copies; 31 is overwritten by store(), rsqrt(),
    /// div_or_zero() and sum_lanes().
    static constexpr int value_registers = 30;
    static Xbyak::Zmm copy() { return Xbyak::Zmm(30); }

  private:
    void load_bf16(const Xbyak::Zmm& to, const Xbyak::Address& from, Lanes lanes);
    void store_bf16(const Xbyak::Address& to, const Xbyak::Zmm& value, Lanes lanes, Caching caching);
    void round_to_bf16(const Xbyak::Zmm& value);
    void store_half(const Xbyak::Address& to, const Xbyak::Ymm& value, Lanes lanes, Caching caching);
    Xbyak::Address address(const Place& place, DType type);
    Xbyak::Address word_constant(uint32_t bits);

    enum class Fused { multiply_add, negative_multiply_add, multiply_subtract };
    void fuse(Fused kind, const Xbyak::Zmm& to, const Xbyak::Zmm& a, const Xbyak::Zmm& b, const Xbyak::Zmm& c);

    struct DenormalPath {
        Xbyak::Label start;
        Xbyak::Label back;
        int value;
    };

    static Xbyak::Zmm scratch() { return Xbyak::Zmm(31); }
    static Xbyak::Opmask tail_mask() { return Xbyak::Opmask(1); }
    static Xbyak::Opmask scratch_mask() { return Xbyak::Opmask(2); }

    DType compute_;
    bool native_bf16_;
    std::map<uint64_t, Xbyak::Label> constants_;  ///< by bit pattern, in the width of the compute type
    std::map<uint32_t, Xbyak::Label> words_;
    std::vector<std::unique_ptr<DenormalPath>> denormal_paths_;
};

}  // namespace normjit::backend::x64
