// SPDX-License-Identifier: Apache-2.0
// Converts between f32 and the 16-bit and 8-bit types, on any processor.
#pragma once

#include <bit>
#include <cstdint>

namespace normjit {

inline float from_bf16(uint16_t word) { return std::bit_cast<float>(static_cast<uint32_t>(word) << 16); }

/// Rounds to nearest even: adds 0x7fff and the lowest kept bit. A NaN keeps its sign and top payload bits.
inline uint16_t to_bf16(float number) {
    const auto bits = std::bit_cast<uint32_t>(number);
    if (number != number) return static_cast<uint16_t>((bits | 0x00400000) >> 16);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Converts with a multiplication that corrects the exponent, which is exact and also works for denormals.
inline float from_f16(uint16_t word) {
    const uint32_t magnitude = word & 0x7fff, sign = static_cast<uint32_t>(word & 0x8000) << 16;
    uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    if (magnitude >= 0x7c00) bits |= 0x7f800000;  // an infinity or a NaN
    return std::bit_cast<float>(bits | sign);
}

/// Rounds to nearest even. For a denormal result, an addition aligns its lowest bit with a float's and rounds.
inline uint16_t to_f16(float number) {
    constexpr uint32_t overflow = (127 + 16) << 23, smallest_normal = (127 - 14) << 23, infinity = 0xff << 23;
    constexpr uint32_t rebias = static_cast<uint32_t>(15 - 127) << 23, aligner = (127 - 15 + 23 - 10 + 1) << 23;
    const auto bits = std::bit_cast<uint32_t>(number);
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t word;
    if (magnitude > infinity) {
        word = 0x7e00 | (magnitude >> 13 & 0x3ff);
    } else if (magnitude >= overflow) {
        word = 0x7c00;
    } else if (magnitude < smallest_normal) {
        word = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(aligner)) - aligner;
    } else {
        word = (magnitude + rebias + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    return static_cast<uint16_t>(word | (bits >> 16 & 0x8000));
}

/// An 8-bit type with a sign, an exponent, and `fraction` bits below it. Back ends convert with these numbers as well.
struct SmallFormat {
    uint32_t fraction, bias;
    float largest;           ///< the largest finite number
    uint32_t first_special;  ///< the first positive code that is not a finite number

    uint32_t cut() const { return 23 - fraction; }  ///< the low bits of an f32's fraction that the type lacks
    /// Returns the difference of the exponents' biases, shifted into place: it is subtracted from the bits of an f32
    /// after they have been shortened.
    uint32_t rebias() const { return (127 - bias) << fraction; }
    float smallest_normal() const { return std::bit_cast<float>((127 + 1 - bias) << 23); }
    /// Returns the number that, when added, makes the smallest denormal the unit in the last place of the sum.
    float aligner() const { return std::bit_cast<float>((127 + 1 - bias - fraction + 23) << 23); }
};
inline constexpr SmallFormat e4m3_format = {3, 7, 448, 0x7f};
inline constexpr SmallFormat e5m2_format = {2, 15, 57344, 0x7c};
inline constexpr uint8_t small_nan = 0x7f;  ///< the NaN that is stored for either type

/// Converts through f16, which can represent all values of both types; values of e4m3 are divided by 2^8.
inline float from_e4m3(uint8_t code) {
    const uint32_t magnitude = code & 0x7f, sign = static_cast<uint32_t>(code & 0x80) << 8;
    if (magnitude == 0x7f) return std::bit_cast<float>(0x7fc00000 | sign << 16);
    return from_f16(static_cast<uint16_t>(magnitude << 7 | sign)) * 256;
}
inline float from_e5m2(uint8_t code) { return from_f16(static_cast<uint16_t>(code << 8)); }

/// Rounds to nearest even, but not beyond the largest finite value. For a denormal result, an addition aligns its
/// lowest bit with a float's and rounds.
inline uint8_t to_small(float number, const SmallFormat& format) {
    if (number != number) return small_nan;
    const auto bits = std::bit_cast<uint32_t>(number);
    float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
    if (magnitude > format.largest) magnitude = format.largest;
    uint32_t code;
    if (magnitude < format.smallest_normal()) {
        code = std::bit_cast<uint32_t>(magnitude + format.aligner()) - std::bit_cast<uint32_t>(format.aligner());
    } else {
        const auto exact = std::bit_cast<uint32_t>(magnitude);
        const uint32_t half = (1u << (format.cut() - 1)) - 1;
        code = ((exact + half + (exact >> format.cut() & 1)) >> format.cut()) - format.rebias();
    }
    return static_cast<uint8_t>(code | (bits >> 24 & 0x80));
}

/// Returns the code of a number that e8m0 can represent: its exponent bits. The code of a NaN is 0xff.
inline uint8_t to_e8m0(float number) { return static_cast<uint8_t>(std::bit_cast<uint32_t>(number) >> 23); }

/// Rounds to nearest even, not beyond the limits; NaN becomes 0. The sum's lowest bit is worth 1, and its last byte is the
/// whole number, in two's complement.
inline uint8_t to_i8(float number) {
    if (number != number) return 0;
    const float within = number < -128 ? -128 : number > 127 ? 127 : number;
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(within + 0x1.8p23f));
}

}  // namespace normjit
