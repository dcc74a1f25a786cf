// SPDX-License-Identifier: Apache-2.0
// Elements of tensors as doubles, which hold every value of every element type. Rounding is to nearest even; a NaN
// stays a NaN, not its payload.
#pragma once

#include "normjit/dtype.h"

#include <cstdint>
#include <vector>

namespace normjit::reference {

/// The number at `element`, which need not be aligned.
double decode(DType type, const void* element);
/// Rounds `number` to the type and writes it.
void encode(DType type, double number, void* element);

/// `count` elements one after the other.
std::vector<double> decode(DType type, const void* elements, int64_t count);
void encode(DType type, const std::vector<double>& numbers, void* elements);

/// The nearest value of the type, infinite beyond its range.
double round_to(DType type, double number);

/// The distance of neighbouring values of the type at `number`; that of denormals near 0. `number` must be finite.
double spacing(DType type, double number);

/// The largest finite and the smallest positive value of the type.
double largest(DType type);
double smallest(DType type);

}  // namespace normjit::reference
