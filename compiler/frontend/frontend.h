// SPDX-License-Identifier: Apache-2.0
// Spec -> IR. One function per norm, each in its own file with its formula; gradients are derived from it.
#pragma once

#include "ir/builder.h"
#include "ir/ir.h"

#include "normjit/spec.h"

namespace normjit::frontend {

/// Returns a function without values, which declares the tensors of the spec's norm and pass. An output that nobody
/// asked for has no type.
ir::Function declare(const Spec& spec);

/// Returns the whole formula of the spec's norm and pass, with all its outputs, requested or not. Passes remove what
/// was not requested.
ir::Function build(const Spec& spec);

struct Normalised {
    ir::Expr xhat, rstd, mean;  ///< mean has no builder if the norm has no mean
};
Normalised layernorm(ir::Builder& b, const Spec& spec, ir::Expr h);
Normalised rmsnorm(ir::Builder& b, const Spec& spec, ir::Expr h);

}  // namespace normjit::frontend
