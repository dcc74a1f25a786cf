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
NORMJIT_DEVICE float exp2(float a) { return ::exp2f(a); }
NORMJIT_DEVICE double exp2(double a) { return ::exp2(a); }
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
NORMJIT_DEVICE float normal(float a) { return ::normcdff(a); }
NORMJIT_DEVICE double normal(double a) { return ::normcdf(a); }

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

// The maximum prevents infinity times 0 where the result is 0.
template <class Math>
NORMJIT_DEVICE Math gelu(Math a) {
    return max(a, Math(-1000)) * normal(a);
}

template <class Math>
NORMJIT_DEVICE Math softplus(Math a) {
    return log1p(exp(-abs(a))) + max(a, Math(0));
}

}  // namespace normjit::math
