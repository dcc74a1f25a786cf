// SPDX-License-Identifier: Apache-2.0
// Converts between tensors in memory and units of the compute type in registers.
#include "backend/x64/assembler.h"

#include <bit>

namespace normjit::backend::x64 {

using namespace Xbyak;

Address Assembler::second_half(const RegExp& place, DType type) {
    return ptr[place + static_cast<size_t>(lanes()) * size_of(type)];
}

void Assembler::load(const Zmms& to, const RegExp& from, DType type, Lanes lanes) {
    const Address source = ptr[from];
    if (packing_ == Packing::one) {
        load_register(to.vectors[0], source, type, tail_mask(), lanes);
    } else if (type == DType::bf16) {
        load_bf16_pair(to, source, lanes);
    } else {
        load_register(scratch(), source, type, tail_mask(), lanes);
        load_register(copy(), second_half(from, type), type, second_half_mask(), lanes);
        for (int v = 0; v < 2; ++v) {
            const Zmm& even_or_odd = to.vectors[static_cast<size_t>(v)];
            vmovups(even_or_odd, ptr[rip + tables_[v == 0 ? Table::even : Table::odd]]);
            vpermi2ps(even_or_odd, scratch(), copy());
        }
    }
}

void Assembler::load_register(const Zmm& to, const Address& from, DType type, const Opmask& mask, Lanes lanes) {
    const Zmm target = lanes == Lanes::tail ? to | mask | T_z : to;
    switch (type) {
        case DType::f32: vmovups(target, from); break;
        case DType::f64: vmovupd(target, from); break;
        case DType::f16: vcvtph2ps(target, from); break;
        case DType::bf16:
            vpmovzxwd(target, from);
            vpslld(to, to, 16);
            break;
        case DType::e4m3:
        case DType::e5m2: load_8bit(to, from, type, mask, lanes); break;
        case DType::i8:
            vpmovsxbd(target, from);
            vcvtdq2ps(to, to);
            break;
        case DType::e8m0:  // only outputs have this type
            break;
    }
}

/// Converts 8-bit codes to f16. An e5m2 is the upper half of an f16; an e4m3 has one exponent bit less, so its values
/// come out 2^-8 times as large, and its NaN would come out as 480.
void Assembler::load_8bit(const Zmm& to, const Address& from, DType type, const Opmask& mask, Lanes lanes) {
    const Ymm words(to.getIdx());
    vpmovzxbw(lanes == Lanes::tail ? words | mask | T_z : words, from);
    vpsllw(words, words, 8);
    if (type == DType::e4m3) {
        vpsraw(words, words, 1);
        vpandd(words, words, word_constant(0xbfffbfff));
    }
    vcvtph2ps(to, words);
    if (type == DType::e5m2) return;
    vmulps(to, to, word_constant(std::bit_cast<uint32_t>(256.0f)));
    vcmpeqps(scratch_mask(), to, word_constant(std::bit_cast<uint32_t>(480.0f)));
    vcmpeqps(scratch_mask2(), to, word_constant(std::bit_cast<uint32_t>(-480.0f)));
    korw(scratch_mask(), scratch_mask(), scratch_mask2());
    vpblendmd(to | scratch_mask(), to, word_constant(0x7fc00000));
}

/// An odd column is the upper half of its 32 bits: clearing the lower half makes an f32. An even column is shifted up.
void Assembler::load_bf16_pair(const Zmms& to, const Address& from, Lanes lanes) {
    const auto& [even, odd] = to.vectors;
    vmovdqu16(lanes == Lanes::tail ? odd | tail_mask() | T_z : odd, from);
    vpslld(even, odd, 16);
    if (kept_.contains(Table::upper)) return vpandd(odd, odd, Zmm(kept_[Table::upper]));
    vpandd(odd, odd, word_constant(0xffff0000));
}

void Assembler::load_rows(const Zmm& to, const RegExp& from, DType type) {
    load_register(to, ptr[from], type, rows_mask(), Lanes::tail);
}

void Assembler::store(const RegExp& to, const Zmms& value, DType type, Lanes lanes, Caching caching) {
    const Address target = ptr[to];
    if (packing_ == Packing::one) {
        store_register(target, value.vectors[0], type, tail_mask(), lanes, caching);
    } else if (type == DType::bf16) {
        store_words(target, pack_bf16(value), tail_mask(), lanes, caching);
    } else {
        shuffle(value, Table::low, Table::high);
        store_register(target, value.vectors[0], type, tail_mask(), lanes, caching);
        store_register(second_half(to, type), value.vectors[1], type, second_half_mask(), lanes, caching);
    }
}

void Assembler::store_register(const Address& to, const Zmm& value, DType type, const Opmask& mask, Lanes lanes,
                               Caching caching) {
    const bool stream = caching == Caching::nontemporal && lanes == Lanes::all;
    const Zmm source = lanes == Lanes::tail ? value | mask : value;
    const Ymm half(value.getIdx());
    switch (type) {
        case DType::f32: stream ? vmovntps(to, value) : vmovups(to, source); break;
        case DType::f64: stream ? vmovntpd(to, value) : vmovupd(to, source); break;
        case DType::f16:
            vcvtps2ph(half, value, 0);
            stream ? vmovntdq(to, half) : vmovdqu16(to, lanes == Lanes::tail ? half | mask : half);
            break;
        case DType::bf16: store_words(to, pack_bf16({{value, value}}), mask, lanes, caching); break;
        case DType::e4m3:
        case DType::e5m2:
        case DType::e8m0:
        case DType::i8:
            if (type == DType::e8m0) {
                vpsrld(value, value, 23);
            } else if (type == DType::i8) {
                round_to_i8(value);
            } else {
                round_to_8bit(value, type == DType::e4m3 ? e4m3_format : e5m2_format);
            }
            const Xmm codes(scratch().getIdx());
            vpmovdb(codes, value);
            stream ? vmovntdq(to, codes) : vmovdqu8(to, lanes == Lanes::tail ? codes | mask : codes);
            break;
    }
}

/// Leaves the code of each number in its 32 bits. Rounds like to_small().
void Assembler::round_to_8bit(const Zmm& value, const SmallFormat& format) {
    const auto number = [&](float constant) { return word_constant(std::bit_cast<uint32_t>(constant)); };
    const Zmm code = scratch(), sign = copy();
    const Opmask is_nan = scratch_mask(), is_denormal = scratch_mask2();
    const auto cut = static_cast<uint8_t>(format.cut());
    vcmpunordps(is_nan, value, value);
    vpandd(sign, value, word_constant(0x80000000));
    vpsrld(sign, sign, 24);
    vpandd(value, value, word_constant(0x7fffffff));
    vminps(value, value, number(format.largest));
    vcmpltps(is_denormal, value, number(format.smallest_normal()));
    vpsrld(code, value, cut);
    vpandd(code, code, word_constant(1));
    vpaddd(code, code, word_constant((1u << (cut - 1)) - 1 - (format.rebias() << cut)));
    vpaddd(code, code, value);
    vpsrld(code, code, cut);
    vaddps(value | is_denormal, value, number(format.aligner()));
    vpsubd(code | is_denormal, value, number(format.aligner()));
    vpord(value, code, sign);
    vpblendmd(value | is_nan, value, word_constant(small_nan));
}

/// Leaves the whole number in each 32 bits. Rounds like to_i8().
void Assembler::round_to_i8(const Zmm& value) {
    const Opmask is_number = scratch_mask();
    vcmpordps(is_number, value, value);
    vmaxps(value | is_number | T_z, value, word_constant(std::bit_cast<uint32_t>(-128.0f)));
    vminps(value, value, word_constant(std::bit_cast<uint32_t>(127.0f)));
    vcvtps2dq(value, value | T_rn_sae);
}

/// Row values take one register in any packing, and they are few, so they are rounded in integers.
void Assembler::store_rows(const RegExp& place, const Zmm& value, DType type) {
    const Address to = ptr[place];
    if (type != DType::bf16) return store_register(to, value, type, rows_mask(), Lanes::tail, Caching::normal);
    const Ymm words(scratch().getIdx());
    round_to_bf16(value);
    vpsrld(value, value, 16);
    vpmovdw(words, value);
    store_words(to, words, rows_mask(), Lanes::tail, Caching::normal);
}

void Assembler::store_words(const Address& to, const Xmm& words, const Opmask& mask, Lanes lanes, Caching caching) {
    if (lanes == Lanes::tail) {
        vmovdqu16(to, words | mask);
    } else if (caching == Caching::nontemporal) {
        vmovntdq(to, words);
    } else {
        vmovdqu16(to, words);
    }
}

/// Returns the register in which pack_bf16() leaves its words: the scratch register, or half of it.
Xmm Assembler::words() const {
    if (packing_ == Packing::even_odd) return scratch();
    return Ymm(scratch().getIdx());
}

/// Returns the unit's bf16 words in the order of memory. vcvtneps2bf16 flushes denormals to zero, whatever MXCSR says,
/// so a unit with a zero among its words takes a detour, which tells real zeros from denormals.
Xmm Assembler::pack_bf16(const Zmms& value) {
    const auto& [even, odd] = value.vectors;
    if (!native_bf16_) {
        pack_bf16_in_integers(value);
        return words();
    }
    detours_.push_back(std::make_unique<OutOfLine>());
    OutOfLine& path = *detours_.back();
    path.value = value;
    if (packing_ == Packing::even_odd) {
        vcvtne2ps2bf16(scratch(), odd, even);  // the even columns, then the odd ones
    } else {
        vcvtneps2bf16(Ymm(scratch().getIdx()), even);
    }
    if (kept_.contains(Table::magnitude)) {  // finds a zero of either sign
        vptestnmw(scratch_mask(), words(), Zmm(kept_[Table::magnitude]));
    } else {
        vptestnmw(scratch_mask(), words(), ptr[rip + tables_[Table::magnitude]]);
    }
    kortestd(scratch_mask(), scratch_mask());
    jnz(path.start, T_NEAR);
    L(path.packed);
    if (packing_ == Packing::even_odd) vpermw(scratch(), table(Table::words, copy()), scratch());
    L(path.done);
    return words();
}

void Assembler::emit_detour(OutOfLine& path) {
    constexpr uint8_t denormal = 0x20;
    const auto& [even, odd] = path.value.vectors;
    L(path.start);
    vfpclassps(scratch_mask(), even, denormal);
    if (packing_ == Packing::even_odd) vfpclassps(scratch_mask2(), odd, denormal);
    kortestw(scratch_mask(), packing_ == Packing::even_odd ? scratch_mask2() : scratch_mask());
    jz(path.packed, T_NEAR);
    pack_bf16_in_integers(path.value);
    jmp(path.done, T_NEAR);
}

void Assembler::pack_bf16_in_integers(const Zmms& value) {
    const auto& [even, odd] = value.vectors;
    round_to_bf16(even);
    vpsrld(even, even, 16);
    if (packing_ == Packing::one) {
        vpmovdw(Ymm(scratch().getIdx()), even);
        return;
    }
    round_to_bf16(odd);
    vpandd(odd, odd, word_constant(0xffff0000));
    vpord(scratch(), even, odd);
}

/// Rounds to nearest even in integers, into the upper half: adds 0x7fff and the lowest kept bit. A NaN keeps its sign
/// and top payload bits and becomes quiet, because the addition would turn some NaNs into infinities.
void Assembler::round_to_bf16(const Zmm& value) {
    const Zmm bits = scratch();
    vpsrld(bits, value, 16);
    vpandd(bits, bits, word_constant(1));
    vpaddd(bits, bits, word_constant(0x7fff));
    vcmpunordps(scratch_mask(), value, value);
    vpaddd(bits, bits, value);
    vpord(bits | scratch_mask(), value, word_constant(0x00400000));
    vmovdqa32(value, bits);
}

void Assembler::round_bf16(const Zmm& to, const Zmm& a) {
    const bool wide = compute_ == DType::f64;
    if (wide) vcvtpd2ps(Ymm(to.getIdx()), a);
    if (!wide && to.getIdx() != a.getIdx()) move(to, a);
    round_to_bf16(to);
    vpandd(to, to, word_constant(0xffff0000));
    if (wide) vcvtps2pd(to, Ymm(to.getIdx()));
}

void Assembler::round_f16(const Zmm& to, const Zmm& a) {
    const Ymm words(scratch().getIdx());
    if (compute_ == DType::f64) {
        vcvtpd2ps(words, a);
        vcvtps2ph(Xmm(words.getIdx()), words, 0);
        vcvtph2ps(words, Xmm(words.getIdx()));
        return vcvtps2pd(to, words);
    }
    vcvtps2ph(words, a, 0);
    vcvtph2ps(to, words);
}

/// Permutes a unit's elements. The first table makes the first register of the result, the second table the second.
void Assembler::shuffle(const Zmms& value, Table first, Table second) {
    vmovups(scratch(), ptr[rip + tables_[first]]);
    vpermi2ps(scratch(), value.vectors[0], value.vectors[1]);
    vmovups(copy(), ptr[rip + tables_[second]]);
    vpermi2ps(copy(), value.vectors[0], value.vectors[1]);
    vmovups(value.vectors[0], scratch());
    vmovups(value.vectors[1], copy());
}

Zmm Assembler::table(Table table, const Zmm& scratch) {
    if (const auto kept = kept_.find(table); kept != kept_.end()) return Zmm(kept->second);
    vmovdqu16(scratch, ptr[rip + tables_[table]]);
    return scratch;
}

/// Emits a table. A shuffle gives the source of each element of the result in two consecutive registers. `magnitude`
/// has all bits of a word except the sign. `upper` has the words of odd columns.
void Assembler::emit_table(Table table) {
    for (uint32_t i = 0; i < 16; ++i) {
        if (table == Table::even) dd(2 * i);
        if (table == Table::odd) dd(2 * i + 1);
        if (table == Table::low) dd(i / 2 + i % 2 * 16);
        if (table == Table::high) dd(8 + i / 2 + i % 2 * 16);
        if (table == Table::words) dd(i | (i + 16) << 16);  // even words below, odd words above
        if (table == Table::magnitude) dd(0x7fff7fff);
        if (table == Table::upper) dd(0xffff0000);
    }
}

}  // namespace normjit::backend::x64
