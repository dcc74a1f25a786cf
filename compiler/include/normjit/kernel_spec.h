// SPDX-License-Identifier: Apache-2.0
// The problem that kernels are compiled for. It is the spec itself, except for a formula with partner(): its kernels
// see each row as two halves, so that an element and its partner are in the same column. A tensor [M,N] then becomes
// two of [M,N/2], N/2 elements apart.
#pragma once

#include "normjit/operand.h"
#include "normjit/spec.h"

namespace normjit {

/// Returns the spec whose operands a kernel takes. `spec` must be valid. The spec of a kernel is returned as it is.
Spec kernel_spec(const Spec& spec);

/// Returns the spec from which kernel_spec() made this one.
const Spec& whole_spec(const Spec& kernel_spec);

/// Returns the tensor of which an operand of a kernel is a part, and the column of the tensor at which that part
/// begins.
struct Part {
    Tensor tensor;
    int64_t first_column;
};
Part part_of(const Spec& kernel_spec, Tensor tensor);

}  // namespace normjit
