// SPDX-License-Identifier: Apache-2.0
// Between elements in memory and numbers of the compute type T, float or double.
#pragma once

#include "normjit/dtype.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace normjit::backend::portable {

inline float from_bf16(uint16_t word) { return std::bit_cast<float>(static_cast<uint32_t>(word) << 16); }

/// Round to nearest even: add 0x7fff and the lowest kept bit. A NaN keeps its sign and top payload bits.
inline uint16_t to_bf16(float number) {
    const auto bits = std::bit_cast<uint32_t>(number);
    if (number != number) return static_cast<uint16_t>((bits | 0x00400000) >> 16);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// The exponent is put right by a multiplication, which is exact and takes denormals along.
inline float from_f16(uint16_t word) {
    const uint32_t magnitude = word & 0x7fff, sign = static_cast<uint32_t>(word & 0x8000) << 16;
    uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    if (magnitude >= 0x7c00) bits |= 0x7f800000;  // an infinity or a NaN
    return std::bit_cast<float>(bits | sign);
}

/// Round to nearest even. For a denormal result an addition aligns its lowest bit with that of a float and rounds.
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

template <class E>
E element(const void* data, int64_t i) {
    E value;
    std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(E)), sizeof value);
    return value;
}

template <class E>
void set_element(void* data, int64_t i, E value) {
    std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(E)), &value, sizeof value);
}

/// `count` elements from element `first` on. f64 tensors only meet T = double, the others T = float.
template <class T>
void load(T* to, const void* data, int64_t first, int64_t count, DType type) {
    for (int64_t i = 0; i < count; ++i) {
        switch (type) {
            case DType::f32:
                to[i] = element<float>(data, first + i);
                break;
            case DType::f64:
                to[i] = static_cast<T>(element<double>(data, first + i));
                break;
            case DType::bf16:
                to[i] = from_bf16(element<uint16_t>(data, first + i));
                break;
            case DType::f16:
                to[i] = from_f16(element<uint16_t>(data, first + i));
                break;
        }
    }
}

template <class T>
void store(void* data, int64_t first, int64_t count, const T* from, DType type) {
    for (int64_t i = 0; i < count; ++i) {
        switch (type) {
            case DType::f32:
                set_element(data, first + i, static_cast<float>(from[i]));
                break;
            case DType::f64:
                set_element(data, first + i, static_cast<double>(from[i]));
                break;
            case DType::bf16:
                set_element(data, first + i, to_bf16(static_cast<float>(from[i])));
                break;
            case DType::f16:
                set_element(data, first + i, to_f16(static_cast<float>(from[i])));
                break;
        }
    }
}

}  // namespace normjit::backend::portable
