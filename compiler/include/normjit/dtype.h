// SPDX-License-Identifier: Apache-2.0
// The element types of tensors in memory. Arithmetic always uses compute_type().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace normjit {

/// e4m3 has no infinities, and one NaN of either sign; e5m2 is the upper half of an f16. A number beyond the largest
/// finite value of these two is stored as that value ("OCP 8-bit Floating Point Specification", 2023, section 5). e8m0
/// is the exponent of an f32: a power of two from 2^-127 to 2^127, or NaN. Numbers are rounded up to it ("OCP
/// Microscaling Formats Specification", 2023, section 5.4.1). i8 is a whole number from -128 to 127: numbers are
/// rounded to nearest even, larger ones are stored as 127, smaller ones as -128, and NaN as 0.
enum class DType : uint8_t { f32, bf16, f16, f64, e4m3, e5m2, e8m0, i8 };

inline constexpr DType all_dtypes[] = {DType::f32,  DType::bf16, DType::f16,  DType::f64,
                                       DType::e4m3, DType::e5m2, DType::e8m0, DType::i8};

/// The types that layernorm and rmsnorm may use. Only formulas use 8-bit types: e8m0 for outputs [M,N/G], the others for
/// matrices.
inline constexpr DType layer_dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

constexpr bool is_8bit(DType type) {
    return type == DType::e4m3 || type == DType::e5m2 || type == DType::e8m0 || type == DType::i8;
}

/// Returns the bytes of one element in memory.
constexpr size_t size_of(DType type) { return type == DType::f64 ? 8 : type == DType::f32 ? 4 : is_8bit(type) ? 1 : 2; }

/// Returns the type of all arithmetic and of all partial sums for inputs of type `x`.
constexpr DType compute_type(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

/// Returns the type to which a framework promotes two types: f32 if both have 16 bits but differ.
constexpr DType promoted(DType a, DType b) {
    if (a == b) return a;
    return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

/// Returns "f32", "bf16", "f16", "f64", "e4m3", "e5m2", "e8m0" or "i8".
std::string_view name(DType type);

/// Returns the type with that name, or nothing for any other text.
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace normjit
