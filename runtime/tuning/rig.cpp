// SPDX-License-Identifier: Apache-2.0
#include "tuning/rig.h"

#include <cstring>

namespace normjit::tuning {

namespace {

constexpr int64_t period = 8;
constexpr float numbers[period] = {1.0f, 1.5f, 0.5f, 2.0f, 0.75f, 1.25f, 1.75f, 3.0f};
constexpr uint16_t halves[period] = {0x3c00, 0x3e00, 0x3800, 0x4000, 0x3a00, 0x3d00, 0x3f00, 0x4200};

template <class T, class Number>
void fill(void* memory, int64_t count, Number number) {
    auto* elements = static_cast<char*>(memory);
    for (int64_t i = 0; i < count; ++i) {
        // Not the same in every column of every row: (x - mean) must not vanish.
        const T value = number((i + i / 61) % period);
        std::memcpy(elements + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
    }
}

}  // namespace

void fill_with_numbers(DType type, void* memory, int64_t bytes) {
    const int64_t count = bytes / static_cast<int64_t>(size_of(type));
    switch (type) {
        case DType::f32:
            return fill<float>(memory, count, [](int64_t i) { return numbers[i]; });
        case DType::f64:
            return fill<double>(memory, count, [](int64_t i) { return static_cast<double>(numbers[i]); });
        case DType::f16:
            return fill<uint16_t>(memory, count, [](int64_t i) { return halves[i]; });
        case DType::bf16:
            return fill<uint16_t>(memory, count, [](int64_t i) {
                uint32_t bits = 0;
                std::memcpy(&bits, &numbers[i], sizeof bits);
                return static_cast<uint16_t>(bits >> 16);
            });
    }
}

}  // namespace normjit::tuning
