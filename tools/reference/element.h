// SPDX-License-Identifier: Apache-2.0
// Elements of tensors as doubles, which can hold every value of every element type. Rounding is to nearest even, except
// for e8m0. A NaN stays a NaN, but its payload may change.
#pragma once

#include "normjit/dtype.h"

#include <cstdint>
#include <vector>

namespace normjit::reference {

/// Returns the number at `element`, which need not be aligned.
double decode(DType type, const void* element);
/// Rounds `number` to the type and writes it.
void encode(DType type, double number, void* element);

/// Decode and encode `count` consecutive elements.
std::vector<double> decode(DType type, const void* elements, int64_t count);
void encode(DType type, const std::vector<double>& numbers, void* elements);

/// Returns the nearest value of the type. Beyond the type's range this is infinite, or the largest value of an 8-bit
/// type. For e8m0 it is the smallest value that is not less.
double round_to(DType type, double number);

/// Returns the distance between neighbouring values of the type at `number`; near 0, that of denormals. `number` must
/// be finite.
double spacing(DType type, double number);

/// Return the largest finite and the smallest positive value of the type.
double largest(DType type);
double smallest(DType type);

}  // namespace normjit::reference
