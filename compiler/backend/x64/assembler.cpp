// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/assembler.h"

#include <bit>

namespace normjit::backend::x64 {

using namespace Xbyak;

Assembler::Assembler(DType compute, const Target& target)
    : CodeGenerator(CodeBuffer::bytes, memory.data()), compute_(compute), native_bf16_(target.avx512_bf16) {}

std::vector<uint8_t> Assembler::finish() {
    for (const auto& path : denormal_paths_) {
        L(path->start);
        const Zmm value(path->value);
        round_to_bf16(value);
        vpmovdw(Ymm(value.getIdx()), value);
        jmp(path->back, T_NEAR);
    }
    align(8);
    for (auto& [bits, label] : constants_) {
        L(label);
        compute_ == DType::f64 ? dq(bits) : dd(static_cast<uint32_t>(bits));
    }
    for (auto& [bits, label] : words_) {
        L(label);
        dd(bits);
    }
    return {getCode(), getCode() + getSize()};
}

Address Assembler::address(const Place& place, DType type) {
    const int size = static_cast<int>(size_of(type));
    return ptr[place.base + place.index * size + static_cast<size_t>(place.elements * size)];
}

Address Assembler::word_constant(uint32_t bits) { return ptr_b[rip + words_[bits]]; }

void Assembler::load(const Zmm& to, const Place& from, DType type, Lanes lanes) {
    const Address source = address(from, type);
    const Zmm target = lanes == Lanes::tail ? to | tail_mask() | T_z : to;
    switch (type) {
        case DType::f32:
            vmovups(target, source);
            break;
        case DType::f64:
            vmovupd(target, source);
            break;
        case DType::f16:
            vcvtph2ps(target, source);
            break;
        case DType::bf16:
            vpmovzxwd(target, source);
            vpslld(to, to, 16);
            break;
    }
}

void Assembler::load_scalar(const Zmm& to, const Reg64& base, const Reg64& index, DType type) {
    const Xmm low(to.getIdx());
    const RegExp at = base + index * static_cast<int>(size_of(type));
    switch (type) {
        case DType::f32:
            vbroadcastss(to, ptr[at]);
            break;
        case DType::f64:
            vbroadcastsd(to, ptr[at]);
            break;
        case DType::f16:
            vpbroadcastw(low, ptr[at]);
            vcvtph2ps(low, low);
            vbroadcastss(to, low);
            break;
        case DType::bf16:
            vpbroadcastw(low, ptr[at]);
            vpslld(low, low, 16);
            vbroadcastss(to, low);
            break;
    }
}

void Assembler::load_constant(const Zmm& to, double number) {
    const uint64_t bits =
        compute_ == DType::f64 ? std::bit_cast<uint64_t>(number) : std::bit_cast<uint32_t>(static_cast<float>(number));
    Label& label = constants_[bits];
    compute_ == DType::f64 ? vbroadcastsd(to, ptr[rip + label]) : vbroadcastss(to, ptr[rip + label]);
}

void Assembler::store(const Place& to, const Zmm& value, DType type, Lanes lanes, Caching caching) {
    const Address target = address(to, type);
    const bool stream = caching == Caching::stream && lanes == Lanes::all;
    const Zmm source = lanes == Lanes::tail ? value | tail_mask() : value;
    switch (type) {
        case DType::f32:
            stream ? vmovntps(target, value) : vmovups(target, source);
            break;
        case DType::f64:
            stream ? vmovntpd(target, value) : vmovupd(target, source);
            break;
        case DType::f16:
            vcvtps2ph(Ymm(value.getIdx()), value, 0);
            store_half(target, Ymm(value.getIdx()), lanes, caching);
            break;
        case DType::bf16:
            store_bf16(target, value, lanes, caching);
            break;
    }
}

void Assembler::store_half(const Address& to, const Ymm& value, Lanes lanes, Caching caching) {
    if (lanes == Lanes::tail) {
        vmovdqu16(to | tail_mask(), value);
    } else if (caching == Caching::stream) {
        vmovntdq(to, value);
    } else {
        vmovdqu16(to, value);
    }
}

/// vcvtneps2bf16 takes denormals for zeros, whatever MXCSR says. Vectors that hold one leave the straight line for the
/// integer rounding; the test costs three instructions where the rounding costs seven.
void Assembler::store_bf16(const Address& to, const Zmm& value, Lanes lanes, Caching caching) {
    const Ymm half(value.getIdx());
    if (native_bf16_) {
        constexpr uint8_t denormal = 0x20;
        denormal_paths_.push_back(std::make_unique<DenormalPath>());
        DenormalPath& path = *denormal_paths_.back();
        path.value = value.getIdx();
        vfpclassps(scratch_mask(), value, denormal);
        kortestw(scratch_mask(), scratch_mask());
        jnz(path.start, T_NEAR);
        vcvtneps2bf16(half, value);
        L(path.back);
    } else {
        round_to_bf16(value);
        vpmovdw(half, value);
    }
    store_half(to, half, lanes, caching);
}

/// Round to nearest even in integers: add 0x7fff and the lowest kept bit, then drop 16 bits. A NaN keeps its sign and
/// top payload bits and becomes quiet; the addition would turn some of them into infinities.
void Assembler::round_to_bf16(const Zmm& value) {
    const Zmm bits = scratch();
    vpsrld(bits, value, 16);
    vpandd(bits, bits, word_constant(1));
    vpaddd(bits, bits, word_constant(0x7fff));
    vcmpunordps(scratch_mask(), value, value);
    vpaddd(bits, bits, value);
    vpord(bits | scratch_mask(), value, word_constant(0x00400000));
    vpsrld(value, bits, 16);
}

void Assembler::move(const Zmm& to, const Operand& from) {
    compute_ == DType::f64 ? vmovupd(to, from) : vmovups(to, from);
}

void Assembler::move_out(const Address& to, const Zmm& from) {
    compute_ == DType::f64 ? vmovupd(to, from) : vmovups(to, from);
}

void Assembler::add(const Zmm& to, const Zmm& a, const Operand& b) {
    compute_ == DType::f64 ? vaddpd(to, a, b) : vaddps(to, a, b);
}
void Assembler::sub(const Zmm& to, const Zmm& a, const Operand& b) {
    compute_ == DType::f64 ? vsubpd(to, a, b) : vsubps(to, a, b);
}
void Assembler::mul(const Zmm& to, const Zmm& a, const Operand& b) {
    compute_ == DType::f64 ? vmulpd(to, a, b) : vmulps(to, a, b);
}
void Assembler::div(const Zmm& to, const Zmm& a, const Operand& b) {
    compute_ == DType::f64 ? vdivpd(to, a, b) : vdivps(to, a, b);
}

void Assembler::div_or_zero(const Zmm& to, const Zmm& a, const Zmm& b) {
    constexpr uint8_t not_equal = 4;  // true for NaN, which must reach the quotient
    zero(scratch());
    if (compute_ == DType::f64) {
        vcmppd(scratch_mask(), b, scratch(), not_equal);
        vdivpd(to | scratch_mask() | T_z, a, b);
    } else {
        vcmpps(scratch_mask(), b, scratch(), not_equal);
        vdivps(to | scratch_mask() | T_z, a, b);
    }
}

void Assembler::rsqrt(const Zmm& to, const Zmm& a) {
    compute_ == DType::f64 ? vsqrtpd(scratch(), a) : vsqrtps(scratch(), a);
    load_constant(to, 1.0);
    div(to, to, scratch());
}

void Assembler::multiply_add(const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c) {
    fuse(Fused::multiply_add, to, a, b, c);
}
void Assembler::negative_multiply_add(const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c) {
    fuse(Fused::negative_multiply_add, to, a, b, c);
}
void Assembler::multiply_subtract(const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c) {
    fuse(Fused::multiply_subtract, to, a, b, c);
}

/// The 231 forms overwrite c, the 213 forms a factor: one of them fits whichever operand `to` is.
void Assembler::fuse(Fused kind, const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c) {
    const auto is = [&](const Zmm& operand) { return to.getIdx() == operand.getIdx(); };
    const bool wide = compute_ == DType::f64;
    if (!is(c) && (is(a) || is(b))) {
        const Zmm& factor = is(a) ? b : a;
        switch (kind) {
            case Fused::multiply_add:
                wide ? vfmadd213pd(to, factor, c) : vfmadd213ps(to, factor, c);
                break;
            case Fused::negative_multiply_add:
                wide ? vfnmadd213pd(to, factor, c) : vfnmadd213ps(to, factor, c);
                break;
            case Fused::multiply_subtract:
                wide ? vfmsub213pd(to, factor, c) : vfmsub213ps(to, factor, c);
                break;
        }
        return;
    }
    if (!is(c)) move(to, c);
    switch (kind) {
        case Fused::multiply_add:
            wide ? vfmadd231pd(to, a, b) : vfmadd231ps(to, a, b);
            break;
        case Fused::negative_multiply_add:
            wide ? vfnmadd231pd(to, a, b) : vfnmadd231ps(to, a, b);
            break;
        case Fused::multiply_subtract:
            wide ? vfmsub231pd(to, a, b) : vfmsub231ps(to, a, b);
            break;
    }
}

void Assembler::sum_lanes(const Zmm& value) {
    const Zmm other = scratch();
    vshuff64x2(other, value, value, 0x4e);  // halves
    add(value, value, other);
    vshuff64x2(other, value, value, 0xb1);  // quarters
    add(value, value, other);
    vpermilpd(other, value, 0x55);  // 64-bit pairs
    add(value, value, other);
    if (compute_ == DType::f64) return;
    vpermilps(other, value, 0xb1);
    add(value, value, other);
}

void Assembler::broadcast(const Zmm& to, const RegExp& from) {
    compute_ == DType::f64 ? vbroadcastsd(to, ptr[from]) : vbroadcastss(to, ptr[from]);
}

void Assembler::store_lane(const RegExp& to, const Zmm& value) {
    const Xmm low(value.getIdx());
    compute_ == DType::f64 ? vmovsd(ptr[to], low) : vmovss(ptr[to], low);
}

void Assembler::set_tail(int count) {
    mov(eax, (1U << count) - 1);
    kmovd(tail_mask(), eax);
}

void Assembler::set_tail(const Reg64& count) {
    mov(eax, -1);
    bzhi(eax, eax, count.cvt32());
    kmovd(tail_mask(), eax);
}

Zmm Assembler::masked(const Zmm& to, Lanes lanes) const { return lanes == Lanes::tail ? to | tail_mask() : to; }

}  // namespace normjit::backend::x64
