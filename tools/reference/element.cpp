// SPDX-License-Identifier: Apache-2.0
#include "element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace normjit::reference {

namespace {

/// A format whose values are integers times 2^(exponent - digits + 1), with exponent from `least` to `most`.
struct Format {
    int digits;  ///< bits of the significand, including the implicit one
    int least;   ///< exponent of the smallest normal value
    int most;    ///< exponent of the largest value
};

constexpr Format format_of(DType type) {
    switch (type) {
        case DType::f32: return {24, -126, 127};
        case DType::bf16: return {8, -126, 127};
        case DType::f16: return {11, -14, 15};
        case DType::f64: return {53, -1022, 1023};
        case DType::e4m3: return {4, -6, 8};
        case DType::e5m2: return {3, -14, 15};
        case DType::e8m0: return {1, -127, 127};
        case DType::i8: return {8, 7, 6};  // so that the spacing is 1
    }
    return {};
}

/// Returns std::ldexp(1.0, exponent), which is too slow for a check of a million elements.
double power_of_two(int exponent) {
    if (exponent < -1022) return std::ldexp(1.0, exponent);
    return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

template <class T>
T load(const void* element) {
    T value;
    std::memcpy(&value, element, sizeof value);
    return value;
}

template <class T>
void store(T value, void* element) {
    std::memcpy(element, &value, sizeof value);
}

double decode_f16(uint16_t bits) {
    const uint64_t sign = static_cast<uint64_t>(bits >> 15) << 63;
    const uint64_t exponent = (bits >> 10) & 31;
    const uint64_t fraction = bits & 1023;
    double size;
    if (exponent == 31) {
        size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
        size = static_cast<double>(fraction) * 0x1p-24;
    } else {
        size = std::bit_cast<double>((exponent + 1023 - 15) << 52 | fraction << 42);
    }
    return std::bit_cast<double>(std::bit_cast<uint64_t>(size) | sign);
}

/// `number` is a value of f16.
uint16_t encode_f16(double number) {
    const auto sign = static_cast<uint16_t>(std::signbit(number) ? 0x8000 : 0);
    const double size = std::fabs(number);
    if (std::isnan(number)) return 0x7e00;
    if (std::isinf(number)) return sign | 0x7c00;
    if (size < 0x1p-14) return sign | static_cast<uint16_t>(size * 0x1p24);
    const auto bits = std::bit_cast<uint64_t>(size);
    return static_cast<uint16_t>(sign | ((bits >> 52) - 1023 + 15) << 10 | ((bits >> 42) & 1023));
}

/// `number` is a value of bf16: the upper half of an f32.
uint16_t encode_bf16(double number) {
    if (std::isnan(number)) return 0x7fc0;
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(number)) >> 16);
}

/// Returns the value of a code by its definition. In e4m3, only the code in which all bits except the sign are set is a
/// NaN, and no code is infinite.
double decode_8bit(DType type, uint8_t code) {
    const Format format = format_of(type);
    const int fraction_bits = format.digits - 1;
    const int exponent = (code & 0x7f) >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
    double size = std::ldexp(fraction, format.least - fraction_bits);
    if (exponent > 0) size = std::ldexp((1 << fraction_bits) + fraction, format.least + exponent - 1 - fraction_bits);
    if (type == DType::e4m3 && (code & 0x7f) == 0x7f) size = std::numeric_limits<double>::quiet_NaN();
    if (type == DType::e5m2 && exponent == 31)
        size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return code & 0x80 ? -size : size;
}

/// Returns the code of `number`, which must be a finite value of the type or a NaN.
uint8_t encode_8bit(DType type, double number) {
    if (std::isnan(number)) return 0x7f;
    const auto sign = static_cast<uint8_t>(std::signbit(number) ? 0x80 : 0);
    uint8_t low = 0, high = 0x7f;  // the codes without a sign are in the order of their values
    while (low < high) {
        const auto middle = static_cast<uint8_t>((low + high) / 2);
        const bool is_below = decode_8bit(type, middle) < std::fabs(number);
        is_below ? low = static_cast<uint8_t>(middle + 1) : high = middle;
    }
    return sign | low;
}

/// Returns the nearest whole number from -128 to 127, never -0; 0 for NaN.
double to_whole(double number) {
    return std::isnan(number) ? 0 : std::clamp(std::nearbyint(number), -128.0, 127.0) + 0.0;
}

/// Returns the smallest power of two in e8m0 that is not less than the number.
double round_up(double number) {
    if (std::isnan(number)) return number;
    const double size = std::clamp(number, 0x1p-127, 0x1p127);
    const double power = power_of_two(std::ilogb(size));
    return power < size ? 2 * power : power;
}

}  // namespace

double decode(DType type, const void* element) {
    switch (type) {
        case DType::f32: return static_cast<double>(load<float>(element));
        case DType::bf16:
            return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(element)) << 16));
        case DType::f16: return decode_f16(load<uint16_t>(element));
        case DType::f64: return load<double>(element);
        case DType::e4m3:
        case DType::e5m2: return decode_8bit(type, load<uint8_t>(element));
        case DType::i8: return load<int8_t>(element);
        case DType::e8m0: {
            const int code = load<uint8_t>(element);
            return code == 255 ? std::numeric_limits<double>::quiet_NaN() : power_of_two(code - 127);
        }
    }
    return std::numeric_limits<double>::quiet_NaN();
}

void encode(DType type, double number, void* element) {
    switch (type) {
        case DType::f32: return store(static_cast<float>(number), element);
        case DType::bf16: return store(encode_bf16(round_to(type, number)), element);
        case DType::f16: return store(encode_f16(round_to(type, number)), element);
        case DType::f64: return store(number, element);
        case DType::e4m3:
        case DType::e5m2: return store(encode_8bit(type, round_to(type, number)), element);
        case DType::e8m0:
            return store(static_cast<uint8_t>(std::isnan(number) ? 255 : std::ilogb(round_to(type, number)) + 127),
                         element);
        case DType::i8: return store(static_cast<int8_t>(to_whole(number)), element);
    }
}

std::vector<double> decode(DType type, const void* elements, int64_t count) {
    std::vector<double> numbers(static_cast<size_t>(count));
    const auto* bytes = static_cast<const std::byte*>(elements);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = decode(type, bytes + i * size_of(type));
    return numbers;
}

void encode(DType type, const std::vector<double>& numbers, void* elements) {
    auto* bytes = static_cast<std::byte*>(elements);
    for (size_t i = 0; i < numbers.size(); ++i) encode(type, numbers[i], bytes + i * size_of(type));
}

double round_to(DType type, double number) {
    if (type == DType::e8m0) return round_up(number);
    if (type == DType::i8) return to_whole(number);
    if (is_8bit(type) && std::fabs(number) > largest(type)) return std::copysign(largest(type), number);
    if (type == DType::f64 || !std::isfinite(number)) return number;
    // At this size, the last place of a double is one spacing of the type, so that the addition rounds.
    const double shift = 0x1.8p52 * spacing(type, number);
    const double rounded = std::copysign(number + shift - shift, number);
    if (std::fabs(rounded) <= largest(type)) return rounded;
    return std::copysign(std::numeric_limits<double>::infinity(), number);
}

double spacing(DType type, double number) {
    const Format format = format_of(type);
    const int exponent = static_cast<int>(std::bit_cast<uint64_t>(number) >> 52 & 2047) - 1023;
    return power_of_two(std::max(exponent, format.least) - format.digits + 1);
}

double largest(DType type) {
    if (type == DType::e4m3) return 448;  // the next value would have the code of the NaN
    if (type == DType::i8) return 127;
    const Format format = format_of(type);
    return (2.0 - power_of_two(1 - format.digits)) * power_of_two(format.most);
}

double smallest(DType type) {
    const Format format = format_of(type);
    return std::ldexp(1.0, format.least - format.digits + 1);
}

}  // namespace normjit::reference
