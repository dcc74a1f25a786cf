// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/assembler.h"

#include <algorithm>
#include <bit>

namespace normjit::backend::x64 {

using namespace Xbyak;

/// Keeps tables that every load or store of a bf16 unit reads in registers, the most useful ones first (NOTES N-207).
Assembler::Assembler(DType compute, Packing packing, const Target& target, int spare_registers)
    : CodeGenerator(CodeBuffer::bytes, start()),
      compute_(compute),
      packing_(packing),
      native_bf16_(target.cpu.avx512_bf16) {
    if (packing == Packing::one) return;
    int next = value_registers;
    for (const Table table : {Table::words, Table::magnitude, Table::upper}) {
        const bool is_used = native_bf16_ || table == Table::upper;
        if (is_used && value_registers - next < spare_registers) kept_[table] = --next;
    }
}

void Assembler::load_kept_tables() {
    for (const auto& [table, number] : kept_) vmovdqu16(Zmm(number), ptr[rip + tables_[table]]);
}

std::vector<uint8_t> Assembler::finish() {
    for (const auto& path : detours_) emit_detour(*path);
    align(64);
    for (auto& [table, label] : tables_) {
        L(label);
        emit_table(table);
    }
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

Address Assembler::word_constant(uint32_t bits) { return ptr_b[rip + words_[bits]]; }

void Assembler::load_constant(const Zmm& to, double number) {
    const uint64_t bits =
        compute_ == DType::f64 ? std::bit_cast<uint64_t>(number) : std::bit_cast<uint32_t>(static_cast<float>(number));
    Label& label = constants_[bits];
    compute_ == DType::f64 ? vbroadcastsd(to, ptr[rip + label]) : vbroadcastss(to, ptr[rip + label]);
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
    constexpr uint8_t not_equal = 4;  // also true for NaN, which must reach the quotient
    zero(scratch());
    if (compute_ == DType::f64) {
        vcmppd(scratch_mask(), b, scratch(), not_equal);
        vdivpd(to | scratch_mask() | T_z, a, b);
    } else {
        vcmpps(scratch_mask(), b, scratch(), not_equal);
        vdivps(to | scratch_mask() | T_z, a, b);
    }
}

void Assembler::finite_or_zero(const Zmm& to, const Zmm& a) {
    constexpr uint8_t quiet_nan = 0x01, infinity = 0x08, negative_infinity = 0x10, signaling_nan = 0x80;
    constexpr uint8_t special = quiet_nan | infinity | negative_infinity | signaling_nan;
    if (to.getIdx() != a.getIdx()) move(to, a);
    if (compute_ == DType::f64) {
        vfpclasspd(scratch_mask(), a, special);
        vxorpd(to | scratch_mask(), to, to);
    } else {
        vfpclassps(scratch_mask(), a, special);
        vxorps(to | scratch_mask(), to, to);
    }
}

/// Compares the bits as integers: those of non-negative floating-point numbers have the same order, and NaN is the
/// largest.
void Assembler::larger_magnitude(const Zmm& to, const Zmm& a, const Zmm& b) {
    if (compute_ == DType::f64) {
        vpandq(scratch(), b, magnitude_mask());
        vpmaxsq(to, a, scratch());
    } else {
        vpandd(scratch(), b, magnitude_mask());
        vpmaxsd(to, a, scratch());
    }
}

void Assembler::larger(const Zmm& to, const Zmm& a, const Zmm& b) {
    select_by_size(Instruction::max, copy(), a, b);
    move(to, copy());
}

void Assembler::rsqrt(const Zmm& to, const Zmm& a) {
    compute_ == DType::f64 ? vsqrtpd(scratch(), a) : vsqrtps(scratch(), a);
    load_constant(to, 1.0);
    div(to, to, scratch());
}

/// The 231 forms overwrite c, and the 213 forms overwrite a factor. One of them fits, whichever operand `to` is.
void Assembler::fuse(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c) {
    using Form = void (CodeGenerator::*)(const Xmm&, const Xmm&, const Operand&);
    struct Forms {
        Instruction instruction;
        Form factor_pd, factor_ps, sum_pd, sum_ps;
    };
    using X = CodeGenerator;
    constexpr Forms all[] = {
        {Instruction::multiply_add, &X::vfmadd213pd, &X::vfmadd213ps, &X::vfmadd231pd, &X::vfmadd231ps},
        {Instruction::negative_multiply_add, &X::vfnmadd213pd, &X::vfnmadd213ps, &X::vfnmadd231pd, &X::vfnmadd231ps},
        {Instruction::multiply_subtract, &X::vfmsub213pd, &X::vfmsub213ps, &X::vfmsub231pd, &X::vfmsub231ps}};
    const Forms& forms = *std::ranges::find(all, instruction, &Forms::instruction);
    const auto is = [&](const Zmm& operand) { return to.getIdx() == operand.getIdx(); };
    const bool wide = compute_ == DType::f64;
    if (!is(c) && (is(a) || is(b))) return (this->*(wide ? forms.factor_pd : forms.factor_ps))(to, is(a) ? b : a, c);
    if (!is(c)) move(to, c);
    (this->*(wide ? forms.sum_pd : forms.sum_ps))(to, a, b);
}

void Assembler::fold_rows(int step, const Zmm& a, const Zmm& b, Reduction reduction) {
    const Zmm other = scratch();
    const int pairs = compute_ == DType::f64 ? 0 : 1;  // the step that interleaves 64-bit words
    if (step < pairs) {
        vunpckhps(other, a, b);
        vunpcklps(a, a, b);
    } else if (step == pairs) {
        vunpckhpd(other, a, b);
        vunpcklpd(a, a, b);
    } else {
        vshuff64x2(other, a, b, 0xdd);  // the odd quarters of both, the even quarters of both
        vshuff64x2(a, a, b, 0x88);
    }
    reduction == Reduction::sum ? add(a, a, other) : select_by_size(Instruction::max, a, a, other);
}

void Assembler::broadcast(const Zmm& to, const RegExp& from) {
    compute_ == DType::f64 ? vbroadcastsd(to, ptr[from]) : vbroadcastss(to, ptr[from]);
}

void Assembler::copy_line(const Address& to, const Address& from, Caching caching) {
    vmovdqa64(scratch(), from);
    caching == Caching::nontemporal ? vmovntdq(to, scratch()) : vmovdqa64(to, scratch());
}

void Assembler::copy_bytes(const Address& to, const Address& from) {
    vmovdqa64(scratch(), from);
    vmovdqu8(to | scratch_mask(), scratch());
}

void Assembler::set_tail(int count) {
    const auto set = [&](const Opmask& mask, int lanes_set) {
        mov(eax, static_cast<uint32_t>((uint64_t{1} << lanes_set) - 1));
        kmovd(mask, eax);
    };
    set(tail_mask(), count);
    if (packing_ == Packing::one) return;
    kshiftrd(second_half_mask(), tail_mask(), 16);
    set(vector_mask(0), (count + 1) / 2);
    set(vector_mask(1), count / 2);
}

void Assembler::set_rows(const Reg64& count) {
    bzhi(count.cvt32(), dword[rip + words_[~0u]], count.cvt32());
    kmovd(rows_mask(), count.cvt32());
}

Zmm Assembler::masked(const Zmm& to, Lanes lanes, int v) const {
    if (lanes == Lanes::all) return to;
    return to | (packing_ == Packing::one ? tail_mask() : vector_mask(v));
}

}  // namespace normjit::backend::x64
