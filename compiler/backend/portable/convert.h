// SPDX-License-Identifier: Apache-2.0
// Converts between elements in memory and numbers of the compute type T, float or double.
#pragma once

#include "support/narrow.h"

#include "normjit/dtype.h"

#include <cstdint>
#include <cstring>

namespace normjit::backend::portable {

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

/// Loads `count` elements, beginning with element `first`. f64 tensors occur only with T = double, all others with T =
/// float.
template <class T>
void load(T* to, const void* data, int64_t first, int64_t count, DType type) {
    for (int64_t i = 0; i < count; ++i) {
        switch (type) {
            case DType::f32: to[i] = element<float>(data, first + i); break;
            case DType::f64: to[i] = static_cast<T>(element<double>(data, first + i)); break;
            case DType::bf16: to[i] = from_bf16(element<uint16_t>(data, first + i)); break;
            case DType::f16: to[i] = from_f16(element<uint16_t>(data, first + i)); break;
            case DType::e4m3: to[i] = from_e4m3(element<uint8_t>(data, first + i)); break;
            case DType::e5m2: to[i] = from_e5m2(element<uint8_t>(data, first + i)); break;
            case DType::i8: to[i] = element<int8_t>(data, first + i); break;
            case DType::e8m0:  // only outputs have this type
                break;
        }
    }
}

template <class T>
void store(void* data, int64_t first, int64_t count, const T* from, DType type) {
    for (int64_t i = 0; i < count; ++i) {
        switch (type) {
            case DType::f32: set_element(data, first + i, static_cast<float>(from[i])); break;
            case DType::f64: set_element(data, first + i, static_cast<double>(from[i])); break;
            case DType::bf16: set_element(data, first + i, to_bf16(static_cast<float>(from[i]))); break;
            case DType::f16: set_element(data, first + i, to_f16(static_cast<float>(from[i]))); break;
            case DType::e4m3: set_element(data, first + i, to_small(static_cast<float>(from[i]), e4m3_format)); break;
            case DType::e5m2: set_element(data, first + i, to_small(static_cast<float>(from[i]), e5m2_format)); break;
            case DType::e8m0: set_element(data, first + i, to_e8m0(static_cast<float>(from[i]))); break;
            case DType::i8: set_element(data, first + i, to_i8(static_cast<float>(from[i]))); break;
        }
    }
}

}  // namespace normjit::backend::portable
