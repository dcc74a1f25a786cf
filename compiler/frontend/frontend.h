// SPDX-License-Identifier: Apache-2.0
// Spec -> IR. One function per norm, each in its own file with its formula.
#pragma once

#include "ir/builder.h"
#include "ir/ir.h"

#include "normjit/spec.h"

namespace normjit::frontend {

/// The whole formula of the spec's norm and pass with all its outputs, asked for or not; passes remove what nobody
/// asked for.
ir::Function build(const Spec& spec);

ir::Function layernorm(const Spec& spec);
ir::Function rmsnorm(const Spec& spec);

/// What is normalised: the tensor x, which in a forward pass is scaled and added to the residual stream first.
ir::Expr normalised(ir::Builder& b, const Spec& spec);

/// The value, rounded to the type where the spec's rounding has a point here.
ir::Expr rounded(const Spec& spec, DType type, ir::Expr value);

/// gamma + gamma_offset, as the layer applied it. Only for specs with gamma.
ir::Expr scale(ir::Builder& b, const Spec& spec);

/// The gradient of xhat: dy * scale, or dy when there is no gamma.
ir::Expr scaled_gradient(ir::Builder& b, const Spec& spec);

/// xhat where the spec's source is not x: read, or recovered from the layer's output.
ir::Expr xhat_from_source(ir::Builder& b, const Spec& spec);

/// An output that few ask for: the formula does without it unless the spec writes it.
void write_asked(ir::Builder& b, const Spec& spec, Tensor tensor, ir::Expr value);

/// The sum over the rows; where the spec accumulates, on top of what the tensor holds.
void write_column_sum(ir::Builder& b, const Spec& spec, Tensor tensor, ir::Expr value);

/// Writes the output of a forward pass: y = xhat * scale + beta, each where there is one.
void write_layer(ir::Builder& b, const Spec& spec, ir::Expr xhat);

/// Writes the outputs of a backward pass: dx, dresidual_in and amax from the gradient of h, dgamma and dbeta.
void write_gradients(ir::Builder& b, const Spec& spec, ir::Expr gradient, ir::Expr xhat);

}  // namespace normjit::frontend
