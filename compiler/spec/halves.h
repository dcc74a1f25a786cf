// SPDX-License-Identifier: Apache-2.0
// Rewrites formulas with partner() to work on rows in two halves.
#pragma once

#include "ir/ir.h"

#include "normjit/spec.h"

namespace normjit {

/// Checks that every tensor of whole rows that the spec reads or writes can be split into two halves, and that this
/// does not make too many tensors.
Status check_halves(const Spec& spec);

/// Rewrites a function of whole rows as a function of their halves, without partner(). `spec` is the spec of the
/// kernel, and `declared` declares its tensors.
ir::Function in_halves(const ir::Function& whole, const Spec& spec, ir::Function declared);

}  // namespace normjit
