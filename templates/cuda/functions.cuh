// SPDX-License-Identifier: Apache-2.0
// The functions of formulas, in their own namespace, so that a formula may use their names for values.
#pragma once

#include "types.cuh"

namespace normjit::math {

NORMJIT_DEVICE float abs(float a) { return ::fabsf(a); }
NORMJIT_DEVICE double abs(double a) { return ::fabs(a); }
NORMJIT_DEVICE float sqrt(float a) { return __fsqrt_rn(a); }
NORMJIT_DEVICE double sqrt(double a) { return __dsqrt_rn(a); }
NORMJIT_DEVICE float exp(float a) { return ::expf(a); }
NORMJIT_DEVICE double exp(double a) { return ::exp(a); }
NORMJIT_DEVICE float log(float a) { return ::logf(a); }
NORMJIT_DEVICE double log(double a) { return ::log(a); }
NORMJIT_DEVICE float log1p(float a) { return ::log1pf(a); }
NORMJIT_DEVICE double log1p(double a) { return ::log1p(a); }
NORMJIT_DEVICE float tanh(float a) { return ::tanhf(a); }
NORMJIT_DEVICE double tanh(double a) { return ::tanh(a); }

NORMJIT_DEVICE float round(float a) { return ::rintf(a); }
NORMJIT_DEVICE double round(double a) { return ::rint(a); }
NORMJIT_DEVICE float erf(float a) { return ::erff(a); }
NORMJIT_DEVICE double erf(double a) { return ::erf(a); }

NORMJIT_DEVICE float min(float a, float b) {
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
}
NORMJIT_DEVICE float max(float a, float b) { return larger(a, b); }
NORMJIT_DEVICE double min(double a, double b) { return b < a || b != b ? b : a; }
NORMJIT_DEVICE double max(double a, double b) { return larger(a, b); }

template <class Math>
NORMJIT_DEVICE Math compare(Math a, Math b) {
    return a > b ? Math(1) : a < b ? Math(-1) : a == b ? Math(0) : a + b;
}

template <class Math>
NORMJIT_DEVICE Math like(Math a, Math) {
    return a;
}

// Returns the smallest power of two that is not less than a: the exponent, rounded up. 2^-127 is a denormal f32.
NORMJIT_DEVICE float round_e8m0(float a) {
    const uint32 bits = __float_as_uint(min(max(a, 0x1p-127f), 0x1p127f));
    if (a != a) return a;
    return bits == 0x00400000u ? f32_of(bits) : f32_of((bits + 0x007fffffu) & 0x7f800000u);
}
NORMJIT_DEVICE double round_e8m0(double a) {
    const int64 bits = __double_as_longlong(min(max(a, 0x1p-127), 0x1p127));
    return a != a ? a : __longlong_as_double((bits + 0x000fffffffffffff) & 0x7ff0000000000000);
}

NORMJIT_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
NORMJIT_DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// Returns exp(r) - 1 for |r| <= ln(2) / 2.
NORMJIT_DEVICE float small_expm1(float r) {
    float sum = 0.0013820734f;
    sum = fused(sum, r, 0.0083686775f);
    sum = fused(sum, r, 0.041668266f);
    sum = fused(sum, r, 0.16666521f);
    sum = fused(sum, r, 0.49999994f);
    return fused(r * r, sum, r);
}

// Adding it to a number below 2^22 rounds to an integer, which the last bits of the sum have.
constexpr float rounding = 0x1.8p23f;

// Returns 2^(k + add) for a sum of k and `rounding`.
NORMJIT_DEVICE float power_of_two(float sum, int add) {
    return f32_of((__float_as_uint(sum) << 23) + (uint32(127 + add) << 23));
}

// CUDA's functions are off by more than 2 units in the last place, and exp by nearly as much.
NORMJIT_DEVICE float exp2(float a) {
    const float x = min(max(a, -151.0f), 129.0f);
    const float half = fused(x, 0.5f, rounding), sum = x + rounding;
    const float k = sum - rounding, half_k = half - rounding;
    const float first = power_of_two(half, 0), second = power_of_two((k - half_k) + rounding, 0);
    return fused(small_expm1((x - k) * 0.693147181f), first, first) * second;
}
NORMJIT_DEVICE double exp2(double a) { return ::exp2(a); }

// exp of a number that is not positive. 2^-24 keeps the power of two normal.
NORMJIT_DEVICE float exp_of_negative(float a) {
    const float x = max(a, -104.0f);
    const float sum = fused(x, 1.44269502f, rounding), k = sum - rounding;
    const float r = fused(k, -1.42860677e-06f, fused(k, -0.693145752f, x));
    const float power = power_of_two(sum, 24);
    return fused(small_expm1(r), power, power) * 0x1p-24f;
}
NORMJIT_DEVICE double exp_of_negative(double a) { return ::exp(a); }

// A number as the sum of two, of which the second is small.
template <class Math>
struct Sum {
    Math high, low;
};

// Returns a / b for b from 1 to 2. A general division has a branch, which prevents the instructions of different
// elements from overlapping.
NORMJIT_DEVICE float quotient(float a, float b) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
    const float guess = a * inverse;
    return __fmaf_rn(__fmaf_rn(-b, guess, a), inverse, guess);
}
NORMJIT_DEVICE double quotient(double a, double b) { return a / b; }

// Takes exp only of a number that is not positive, which cannot overflow where the result is small.
template <class Math>
NORMJIT_DEVICE Math sigmoid(Math a) {
    const Math power = exp(-abs(a));
    return quotient(a < 0 ? power : Math(1), Math(1) + power);
}

// Returns exp(x * x / 2) * erfc(x / sqrt(2)) / 2 * x for x >= 0. expand_functions.cpp has the polynomial.
NORMJIT_DEVICE Sum<float> weighted_tail(float x) {
    constexpr float middle = 2.5f, first = 0.7066566348075867f, first_low = 2.5269525e-08f;
    constexpr float others[] = {-0.433692008f,  0.131986961f,   0.00923579466f,   -0.0163859855f,  -0.00160037773f,
                                0.00252328371f, 0.00068340468f, -0.000310984905f, -0.000156889873f};
    const float sum = x + middle, sum_low = x - (sum - middle);
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(sum));
    const float w = x * inverse, w_low = fused(-w, sum_low, fused(-w, sum, x)) * inverse;
    const float argument = fused(w, 2.0f, -1.0f);
    float slope = others[8];
#pragma unroll
    for (int i = 7; i >= 0; --i) slope = fused(slope, argument, others[i]);
    const float high = fused(argument, slope, first);
    const float low = fused(argument, slope, first - high) + fused(2.0f * w_low, slope, first_low);
    const float result = rounded_product(w, high);
    return {result, fused(w, high, -result) + fused(w, low, w_low * high)};
}

// Returns max(a, 0) - |a| * erfc(|a| / sqrt(2)) / 2, which loses no digits below 0. Beyond 14.42 the product is 0.
NORMJIT_DEVICE float gelu(float a) {
    const float x = min(abs(a), 14.42f);
    const float square = rounded_product(x, x), square_low = fused(x, x, -square);
    const float density = exp_of_negative(-0.5f * square);
    const Sum<float> tail = weighted_tail(x);
    return max(a, -0.0f) - fused(tail.high, density, density * fused(tail.high * -0.5f, square_low, tail.low));
}
// The maximum prevents infinity times 0 where the result is 0.
NORMJIT_DEVICE double gelu(double a) { return max(a, -1000.0) * ::normcdf(a); }

template <class Math>
NORMJIT_DEVICE Math softplus(Math a) {
    return log1p(exp_of_negative(-abs(a))) + max(a, Math(0));
}

}  // namespace normjit::math
