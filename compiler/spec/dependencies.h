// SPDX-License-Identifier: Apache-2.0
// Which outputs of a spec depend on what.
#pragma once

#include "normjit/spec.h"

namespace normjit {

/// True if the gradient of what was normalised is an output, under either of its names, or its largest magnitude.
bool writes_dx(const Spec& spec);
bool writes_statistics(const Spec& spec);
/// True if a requested gradient depends on xhat. All but dbeta = col_sum(dy) do.
bool needs_xhat(const Spec& spec);
/// True if a requested output depends on the tensor, in a layer that has it.
bool needs(const Spec& spec, Tensor tensor);

}  // namespace normjit
