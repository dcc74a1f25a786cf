// SPDX-License-Identifier: Apache-2.0
// Formulas with partner(), over rows in two halves.
#pragma once

#include "ir/ir.h"

#include "normjit/spec.h"

namespace normjit {

/// True if a value is partner() of another.
bool has_partners(const ir::Function& function);

/// True if all of several columns share an element. Both halves then do, and one tensor serves them.
bool is_one_run(const Axes& axes, int64_t cols);

/// Returns the function of whole rows as one of their halves, without partner(). `spec` is that of the kernel, whose
/// tensors `declared` declares.
ir::Function in_halves(const ir::Function& whole, const Spec& spec, ir::Function declared);

}  // namespace normjit
