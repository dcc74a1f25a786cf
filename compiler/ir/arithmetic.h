// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the element-wise ops, for constant folding and for evaluating formulas.
#pragma once

#include "ir/ir.h"
#include "support/narrow.h"

#include <algorithm>
#include <cmath>

namespace normjit::ir {

template <class T>
T sigmoid(T a) {
    return T(1) / (T(1) + std::exp(-a));
}

template <class T>
T silu(T a) {
    return a < 0 && std::isinf(a) ? T(-0.0) : a * sigmoid(a);
}

template <class T>
T softplus(T a) {
    const T magnitude = std::log1p(std::exp(-std::fabs(a)));
    return a > 0 ? a + magnitude : magnitude;
}

/// The factors of gelu_tanh(a) = a * sigmoid(a * (linear + cubic * a * a)): 2 * sqrt(2 / pi), and 0.044715 times that.
constexpr double gelu_linear = 1.5957691216057308, gelu_cubic = 0.07135481627260025;
/// The parts of these numbers that rounding to double removes.
constexpr double gelu_linear_low = -9.9693088091109203e-17, gelu_cubic_low = -6.1751499181553155e-19;
/// From here on the sigmoid in gelu_tanh is exactly 0 or 1.
constexpr double gelu_tanh_far = 22;

template <class T>
T gelu_tanh(T a) {
    if (a < 0 && std::isinf(a)) return T(-0.0);
    return a * sigmoid(a * (T(gelu_linear) + T(gelu_cubic) * (a * a)));
}

constexpr double root_half = 0.70710678118654752;

template <class T>
T gelu(T a) {
    if (a < 0 && std::isinf(a)) return T(-0.0);
    return a / 2 * std::erfc(-a * T(root_half));
}

template <class T>
T mantissa(T a) {
    if (a == 0 || (a > 0 && std::isinf(a))) return 1;
    if (!(a > 0)) return T(NAN);
    int ignored;
    const T half = std::frexp(a, &ignored);
    return half < T(0.75) ? 2 * half : half;
}

template <class T>
T exponent(T a) {
    if (a == 0) return -T(INFINITY);
    if (!(a > 0) || std::isinf(a)) return a < 0 ? T(NAN) : a;
    int power;
    return std::frexp(a, &power) < T(0.75) ? T(power - 1) : T(power);
}

/// The least and the largest number that e8m0 has.
constexpr double least_e8m0 = 0x1p-127, largest_e8m0 = 0x1p127;

template <class T>
T round_e8m0(T a) {
    if (std::isnan(a)) return a;
    int power;
    const bool is_power = std::frexp(std::clamp(a, T(least_e8m0), T(largest_e8m0)), &power) == T(0.5);
    return std::ldexp(T(1), is_power ? power - 1 : power);
}

/// Computes an op in type T, float or double. Unary ops ignore `b`.
template <class T>
T compute(Op op, T a, T b) {
    using std::exp, std::exp2, std::tanh, std::log, std::log1p, std::erf;
    switch (op) {
#define FUNCTION(name, ...) \
    case Op::name: return name(a);
#include "ir/ops.def"
        case Op::add: return a + b;
        case Op::sub: return a - b;
        case Op::mul: return a * b;
        case Op::div: return a / b;
        case Op::div_or_zero: return b == 0 ? T(0) : a / b;
        case Op::rsqrt: return T(1) / std::sqrt(a);
        case Op::sqrt: return std::sqrt(a);
        case Op::abs: return std::fabs(a);
        case Op::min: return b < a || std::isnan(b) ? b : a;
        case Op::max: return b > a || std::isnan(b) ? b : a;
        case Op::compare: return a > b ? T(1) : a < b ? T(-1) : a == b ? T(0) : a + b;
        case Op::like:
        case Op::detach: return a;
        case Op::product_error: return std::fma(a, b, -(a * b));
        case Op::copysign: return std::copysign(a, b);
        case Op::mantissa: return mantissa(a);
        case Op::exponent: return exponent(a);
        case Op::ldexp: return std::isnan(b) ? b : std::ldexp(a, static_cast<int>(b));
        case Op::round: return std::nearbyint(a);
        case Op::round_bf16: return static_cast<T>(from_bf16(to_bf16(static_cast<float>(a))));
        case Op::round_f16: return static_cast<T>(from_f16(to_f16(static_cast<float>(a))));
        case Op::round_e8m0: return round_e8m0(a);
        default: return T(NAN);  // no element-wise op
    }
}

}  // namespace normjit::ir
