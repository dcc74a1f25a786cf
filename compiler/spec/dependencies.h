// SPDX-License-Identifier: Apache-2.0
// Decides which inputs the outputs of a spec depend on.
#pragma once

#include "normjit/spec.h"

namespace normjit {

/// True if the gradient of the normalised value is an output, under either of its names.
bool writes_dx(const Spec& spec);
bool writes_statistics(const Spec& spec);
/// True if a requested gradient depends on xhat. All do except dbeta = col_sum(dy).
bool needs_xhat(const Spec& spec);
/// True if a requested output depends on the tensor, provided the layer has it.
bool needs(const Spec& spec, Tensor tensor);

}  // namespace normjit
