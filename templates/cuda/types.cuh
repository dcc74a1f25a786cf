// SPDX-License-Identifier: Apache-2.0
// Element types, type lists, and conversions between vectors of elements and the 32-bit words that are loaded and
// stored. This folder includes no CUDA or host header, so that NVRTC needs a twentieth of the time per kernel.
#pragma once

namespace normjit {

#define NORMJIT_DEVICE static __device__ __forceinline__

using int64 = long long;
using uint32 = unsigned int;

struct bf16 {
    unsigned short bits;
};
struct f16 {
    unsigned short bits;
};
struct e4m3 {
    unsigned char bits;
};
struct e5m2 {
    unsigned char bits;
};

struct e8m0 {
    unsigned char bits;
};
struct i8 {
    signed char number;
};

template <int value_>
struct Index {
    static constexpr int value = value_;
};

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }
constexpr int at_least(int a, int b) { return a > b ? a : b; }

template <class T, int width = 1>
constexpr int bytes_of = width * int(sizeof(T));

// The number of words that hold `width` elements, at least one.
template <class T, int width>
constexpr int words_of = ceil_div(bytes_of<T, width>, 4);

template <int i, class... T>
struct At;
template <int i, class First, class... Rest>
struct At<i, First, Rest...> {
    using type = typename At<i - 1, Rest...>::type;
};
template <class First, class... Rest>
struct At<0, First, Rest...> {
    using type = First;
};

// The dtypes of a group of operands, in operand order.
template <class... T>
struct List {
    static constexpr int count = sizeof...(T);
    static constexpr int element_bytes = (0 + ... + bytes_of<T>);  // bytes of one element of every operand
    template <int i>
    using type = typename At<i, T...>::type;
    template <int width, int i = count>
    static constexpr int words_before() {
        int total = 0, k = 0;
        ((total += k++ < i ? words_of<T, width> : 0), ...);
        return total;
    }
    template <int i>
    static constexpr int bytes_before() {
        int total = 0, k = 0;
        ((total += k++ < i ? bytes_of<T> : 0), ...);
        return total;
    }
};

// Returns a product that is rounded before it is added to anything.
NORMJIT_DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
NORMJIT_DEVICE double rounded_product(double a, double b) { return __dmul_rn(a, b); }
NORMJIT_DEVICE float inverse_root(float a) { return __frsqrt_rn(a); }
NORMJIT_DEVICE double inverse_root(double a) { return 1.0 / __dsqrt_rn(a); }

template <class Math>
NORMJIT_DEVICE Math div_or_zero(Math a, Math b) {
    return b == 0 ? Math(0) : a / b;
}

// Returns the larger of a, which must not be negative, and |b|; NaN if either is NaN.
NORMJIT_DEVICE float larger_magnitude(float a, float b) {
    float larger;
    asm("{ .reg .f32 m; abs.f32 m, %2; max.NaN.f32 %0, %1, m; }" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}
NORMJIT_DEVICE double larger_magnitude(double a, double b) {
    const double magnitude = b < 0 ? -b : b;
    return magnitude <= a || a != a ? a : magnitude;
}

// Returns the larger of a and b; NaN if one is NaN.
NORMJIT_DEVICE float larger(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
NORMJIT_DEVICE double larger(double a, double b) { return b > a || b != b ? b : a; }

// Calls f(Index<begin>), ..., f(Index<end - 1>). Unrolls three at a time, because every instance costs NVRTC time.
template <int begin, int end, class F>
NORMJIT_DEVICE void unroll(const F& f) {
    if constexpr (begin < end) f(Index<begin>{});
    if constexpr (begin + 1 < end) f(Index<begin + 1>{});
    if constexpr (begin + 2 < end) f(Index<begin + 2>{});
    if constexpr (begin + 3 < end) unroll<begin + 3, end>(f);
}

NORMJIT_DEVICE float f32_of(uint32 bits) { return __uint_as_float(bits); }

NORMJIT_DEVICE float f32_of_f16(uint32 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)bits));
    return value;
}

// f16 can represent all values of e4m3 and e5m2; values of e4m3 are divided by 2^8. 0x7f is the code of e4m3's NaN.
template <class T>
NORMJIT_DEVICE float f32_of_8bit(uint32 code) {
    if constexpr (same<T, i8>) return float(int((signed char)code));
    if constexpr (same<T, e5m2>) return f32_of_f16(code << 8);
    const uint32 magnitude = code & 0x7f;
    const float value = 256.f * f32_of_f16(magnitude << 7 | (code & 0x80) << 8);
    return magnitude == 0x7f ? f32_of(0x7fc00000u) : value;
}

template <class T, int width, class Math>
NORMJIT_DEVICE void unpack(const uint32* words, Math (&out)[width]) {
#pragma unroll
    for (int e = 0; e < width; e++) {
        const uint32 word = words[e * bytes_of<T> / 4];
        if constexpr (same<T, bf16>) out[e] = f32_of(e % 2 ? word & 0xffff0000u : word << 16);
        if constexpr (same<T, f16>) out[e] = f32_of_f16(e % 2 ? word >> 16 : word);
        if constexpr (sizeof(T) == 1) out[e] = f32_of_8bit<T>(word >> (e % 4 * 8) & 0xff);
        if constexpr (same<T, float>) out[e] = f32_of(word);
        if constexpr (same<T, double>) out[e] = Math(__hiloint2double(int(words[2 * e + 1]), int(word)));
    }
}

// Rounds two numbers to 16-bit elements, to nearest even, with denormals. The low half comes first in memory.
template <class T>
NORMJIT_DEVICE uint32 pack_pair(float low, float high) {
    uint32 word;
    if constexpr (same<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    if constexpr (same<T, f16>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// Returns the code of a number in an 8-bit type, rounded to nearest even but not beyond the largest finite value. For a
// denormal result, an addition aligns its lowest bit and rounds.
template <class T>
NORMJIT_DEVICE uint32 code_of(float value) {
    constexpr uint32 fraction = same<T, e4m3> ? 3 : 2, bias = same<T, e4m3> ? 7 : 15, cut = 23 - fraction;
    constexpr float largest = same<T, e4m3> ? 448.f : 57344.f;
    const uint32 sign = __float_as_uint(value) >> 24 & 0x80;
    const float size = f32_of(__float_as_uint(value) & 0x7fffffffu), magnitude = size > largest ? largest : size;
    const float aligner = f32_of((127 + 1 - bias - fraction + 23) << 23);
    const uint32 exact = __float_as_uint(magnitude),
                 denormal = __float_as_uint(magnitude + aligner) - __float_as_uint(aligner);
    const uint32 normal = ((exact + (1u << (cut - 1)) - 1 + (exact >> cut & 1)) >> cut) - ((127 - bias) << fraction);
    if (value != value) return 0x7f;
    return (exact < (127 + 1 - bias) << 23 ? denormal : normal) | sign;
}

// Rounds to nearest even, not beyond -128 and 127; NaN becomes 0.
NORMJIT_DEVICE uint32 byte_of(float value) {
    int number;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(number) : "f"(value));
    return uint32(number) & 0xff;
}

// Returns the codes of two numbers. The low byte comes first in memory.
template <class T>
NORMJIT_DEVICE uint32 code_pair(float low, float high) {
    if constexpr (same<T, e8m0>)  // the numbers are already values of the type
        return (__float_as_uint(low) >> 23 & 0xff) | (__float_as_uint(high) >> 23 & 0xff) << 8;
    if constexpr (same<T, i8>) return byte_of(low) | byte_of(high) << 8;
#if __CUDA_ARCH__ >= 890
    unsigned short codes;
    if constexpr (same<T, e4m3>) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    if constexpr (same<T, e5m2>) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
#else
    return code_of<T>(low) | code_of<T>(high) << 8;
#endif
}

// Converts f64 to f32, rounding to odd, so that only the following rounding to 16 bits has an effect.
NORMJIT_DEVICE float narrow_to_odd(double value) {
    float cut;
    asm("cvt.rz.f32.f64 %0, %1;" : "=f"(cut) : "d"(value));
    return double(cut) == value ? cut : f32_of(__float_as_uint(cut) | 1u);
}
NORMJIT_DEVICE float narrow_to_odd(float value) { return value; }

NORMJIT_DEVICE float round_bf16(float value) { return f32_of(pack_pair<bf16>(value, 0.f) << 16); }
NORMJIT_DEVICE float round_f16(float value) { return f32_of_f16(pack_pair<f16>(value, 0.f)); }

template <class T, int width, class Math>
NORMJIT_DEVICE void pack(const Math (&in)[width], uint32* words) {
    if constexpr (sizeof(T) == 1) {
#pragma unroll
        for (int e = 0; e < width; e += 2) {
            const uint32 pair = code_pair<T>(in[e], e + 1 < width ? in[(e + 1) % width] : 0.f);
            words[e / 4] = e % 4 ? words[e / 4] | pair << 16 : pair;
        }
    } else if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int e = 0; e < width; e += 2) {
            const float high = e + 1 < width ? narrow_to_odd(in[(e + 1) % width]) : 0.f;
            words[e / 2] = pack_pair<T>(narrow_to_odd(in[e]), high);
        }
    } else {
#pragma unroll
        for (int e = 0; e < width; e++) {
            if constexpr (same<T, float>) words[e] = __float_as_uint(float(in[e]));
            if constexpr (same<T, double>) {
                words[2 * e] = uint32(__double2loint(in[e]));
                words[2 * e + 1] = uint32(__double2hiint(in[e]));
            }
        }
    }
}

}  // namespace normjit
