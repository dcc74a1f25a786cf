// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 and the 16-bit types, on any processor.
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

/// Converts with a multiplication that corrects the exponent; it is exact and works for denormals as well.
inline float from_f16(uint16_t word) {
    const uint32_t magnitude = word & 0x7fff, sign = static_cast<uint32_t>(word & 0x8000) << 16;
    uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    if (magnitude >= 0x7c00) bits |= 0x7f800000;  // an infinity or a NaN
    return std::bit_cast<float>(bits | sign);
}

/// Rounds to nearest even. For a denormal result an addition aligns its lowest bit with a float's and rounds.
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

}  // namespace normjit
