// SPDX-License-Identifier: Apache-2.0
// Spec -> IR. The forward passes are the formulas of templates/norms; gradients are derived from them.
#pragma once

#include "ir/ir.h"

#include "normjit/spec.h"

namespace normjit::frontend {

/// Returns a function that has no values yet and declares the tensors of the spec's norm and pass. An output that is
/// not requested has no type.
ir::Function declare(const Spec& spec);

/// Returns the whole formula of the spec's norm and pass, with all its outputs, requested or not. Passes remove what
/// was not requested.
ir::Function build(const Spec& spec);

}  // namespace normjit::frontend
