// SPDX-License-Identifier: Apache-2.0
// The problem that kernels are compiled for. It is the spec itself, except for a formula with partner(): there a kernel
// sees each row as two halves, so that an element and its partner are in the same column. A tensor [M,N] is then two of
// [M,N/2], N/2 elements apart.
#pragma once

#include "normjit/operand.h"
#include "normjit/spec.h"

namespace normjit {

/// Returns the spec whose operands a kernel takes. `spec` must be valid; the spec of a kernel is its own.
Spec kernel_spec(const Spec& spec);

/// Returns the spec from which kernel_spec() made this one.
const Spec& whole_spec(const Spec& kernel_spec);

/// Returns the tensor that an operand of a kernel is a part of, and the column of the tensor at which it begins.
struct Part {
    Tensor tensor;
    int64_t first_column;
};
Part part_of(const Spec& kernel_spec, Tensor tensor);

}  // namespace normjit
