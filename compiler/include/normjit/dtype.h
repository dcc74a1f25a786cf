// SPDX-License-Identifier: Apache-2.0
// Element types of tensors in memory. Arithmetic always happens in compute_type().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace normjit {

enum class DType : uint8_t { f32, bf16, f16, f64 };

inline constexpr DType all_dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

/// Bytes of one element in memory.
constexpr size_t size_of(DType type) { return type == DType::f64 ? 8 : type == DType::f32 ? 4 : 2; }

/// The type of all arithmetic and of all partial sums for inputs of type `x`.
constexpr DType compute_type(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

/// "f32", "bf16", "f16", "f64".
std::string_view name(DType type);

/// Returns the type with that name, or nothing for any other text.
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace normjit
