// SPDX-License-Identifier: Apache-2.0
// The instructions of loop bodies.
#include "backend/x64/assembler.h"

namespace normjit::backend::x64 {

using Xbyak::Opmask;

namespace {

/// The immediate of vgetmant: results from 3/4 to 3/2, NaN for negative numbers, no sign for -0.
constexpr uint8_t from_three_quarters = 0b1111;
constexpr uint8_t less = 1, unordered = 3, greater = 0x0e;

/// The immediates of vpermil that exchange the lanes of each pair.
constexpr uint8_t swapped_pairs_of_four = 0b10'11'00'01, swapped_pairs_of_two = 0b01'01'01'01;

}  // namespace

Xbyak::Address Assembler::magnitude_mask() {
    return compute_ == DType::f64 ? ptr_b[rip + constants_[~uint64_t{0} >> 1]] : word_constant(~uint32_t{0} >> 1);
}

void Assembler::compute(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c) {
    const bool wide = compute_ == DType::f64;
    switch (instruction) {
        case Instruction::add: return add(to, a, b);
        case Instruction::sub: return sub(to, a, b);
        case Instruction::mul: return mul(to, a, b);
        case Instruction::div: return div(to, a, b);
        case Instruction::div_or_zero: return div_or_zero(to, a, b);
        case Instruction::rsqrt: return rsqrt(to, a);
        case Instruction::sqrt: return wide ? vsqrtpd(to, a) : vsqrtps(to, a);
        case Instruction::abs: return wide ? vpandq(to, a, magnitude_mask()) : vpandd(to, a, magnitude_mask());
        case Instruction::compare: return compare(to, a, b);
        case Instruction::neighbour:
            return wide ? vpermilpd(to, a, swapped_pairs_of_two) : vpermilps(to, a, swapped_pairs_of_four);
        case Instruction::product_error:
            mul(scratch(), a, b);
            return fuse(Instruction::multiply_subtract, to, a, b, scratch());
        case Instruction::copysign: return copy_sign(to, a, b);
        case Instruction::ldexp: return wide ? vscalefpd(to, a, b) : vscalefps(to, a, b);
        case Instruction::mantissa:
            return wide ? vgetmantpd(to, a, from_three_quarters) : vgetmantps(to, a, from_three_quarters);
        case Instruction::exponent: return exponent(to, a);
        case Instruction::round_bf16: return round_bf16(to, a);
        case Instruction::round_f16: return round_f16(to, a);
        case Instruction::finite_or_zero: return finite_or_zero(to, a);
        case Instruction::multiply_add:
        case Instruction::negative_multiply_add:
        case Instruction::multiply_subtract: return fuse(instruction, to, a, b, c);
        default: return select_by_size(instruction, to, a, b);
    }
}

/// The machine's min and max return their second operand if either is NaN.
void Assembler::select_by_size(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b) {
    const bool wide = compute_ == DType::f64;
    const bool is_min = instruction == Instruction::min || instruction == Instruction::min_number;
    const bool may_be_nan = instruction == Instruction::min || instruction == Instruction::max;
    if (may_be_nan) wide ? vcmppd(scratch_mask(), b, b, unordered) : vcmpps(scratch_mask(), b, b, unordered);
    if (may_be_nan && to.getIdx() == b.getIdx()) move(scratch(), b);
    const Zmm& nan = to.getIdx() == b.getIdx() ? scratch() : b;
    if (is_min) {
        wide ? vminpd(to, b, a) : vminps(to, b, a);
    } else {
        wide ? vmaxpd(to, b, a) : vmaxps(to, b, a);
    }
    if (may_be_nan) wide ? vmovapd(to | scratch_mask(), nan) : vmovaps(to | scratch_mask(), nan);
}

void Assembler::compare(const Zmm& to, const Zmm& a, const Zmm& b) {
    const auto set = [&](const Opmask& mask, uint8_t relation) {
        compute_ == DType::f64 ? vcmppd(mask, a, b, relation) : vcmpps(mask, a, b, relation);
    };
    const auto masked = [&](const Opmask& mask) { return scratch() | mask; };
    load_constant(copy(), 1.0);
    set(scratch_mask(), greater);
    set(scratch_mask2(), less);
    compute_ == DType::f64 ? vmovapd(masked(scratch_mask()) | T_z, copy())
                           : vmovaps(masked(scratch_mask()) | T_z, copy());
    sub(masked(scratch_mask2()), scratch(), copy());
    set(scratch_mask(), unordered);
    add(masked(scratch_mask()), a, b);
    move(to, scratch());
}

/// Takes the bits that are set in the mask from a, and the sign from b.
void Assembler::copy_sign(const Zmm& to, const Zmm& a, const Zmm& b) {
    constexpr uint8_t choose = 0xe4;
    if (compute_ == DType::f64) {
        vmovapd(scratch(), a);
        vpternlogq(scratch(), b, magnitude_mask(), choose);
    } else {
        vmovaps(scratch(), a);
        vpternlogd(scratch(), b, magnitude_mask(), choose);
    }
    move(to, scratch());
}

/// vgetexp assumes mantissas from 1 to 2. If the mantissa is below 1, its exponent -1 is subtracted.
void Assembler::exponent(const Zmm& to, const Zmm& a) {
    if (compute_ == DType::f64) {
        vgetmantpd(scratch(), a, from_three_quarters);
        vgetexppd(scratch(), scratch());
        vgetexppd(to, a);
    } else {
        vgetmantps(scratch(), a, from_three_quarters);
        vgetexpps(scratch(), scratch());
        vgetexpps(to, a);
    }
    sub(to, to, scratch());
}

}  // namespace normjit::backend::x64
