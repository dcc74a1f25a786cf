// SPDX-License-Identifier: Apache-2.0
// Formulas with partner(), over rows in two halves.
#pragma once

#include "ir/ir.h"

#include "normjit/spec.h"

namespace normjit {

/// Checks that the tensors of whole rows can be those of two halves, of which there are not too many.
Status check_halves(const Formula& formula, int64_t cols);

/// Rewrites a function of whole rows as one of their halves, without partner(). `spec` is the kernel's, and `declared`
/// declares its tensors.
ir::Function in_halves(const ir::Function& whole, const Spec& spec, ir::Function declared);

}  // namespace normjit
