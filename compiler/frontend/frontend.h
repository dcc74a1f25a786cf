// SPDX-License-Identifier: Apache-2.0
// Builds IR from a Spec. Each norm has a function in its own file with its formula.
#pragma once

#include "ir/builder.h"
#include "ir/ir.h"

#include "normjit/spec.h"

namespace normjit::frontend {

/// Returns the whole formula of the norm and pass with all outputs; passes remove the outputs that are not requested.
ir::Function build(const Spec& spec);

ir::Function layernorm(const Spec& spec);
ir::Function rmsnorm(const Spec& spec);

/// Returns the input of the normalisation: x, which a forward pass first scales and adds to the residual stream.
ir::Expr normalised(ir::Builder& b, const Spec& spec);

/// Returns the value, rounded to the type if the spec's rounding includes this place.
ir::Expr rounded(const Spec& spec, DType type, ir::Expr value);

/// Returns gamma + gamma_offset, as the layer applied it. Only for specs with gamma.
ir::Expr scale(ir::Builder& b, const Spec& spec);

/// Returns the gradient of xhat: dy * scale, or dy if there is no gamma.
ir::Expr scaled_gradient(ir::Builder& b, const Spec& spec);

/// Returns xhat if the spec's source is not x: read, or recovered from the layer's output.
ir::Expr xhat_from_source(ir::Builder& b, const Spec& spec);

/// Writes an output if the spec does; the formula contains the others in any case.
void write_asked(ir::Builder& b, const Spec& spec, Tensor tensor, ir::Expr value);

/// Writes the sum over the rows; if the spec accumulates, adds it to the tensor's old value.
void write_column_sum(ir::Builder& b, const Spec& spec, Tensor tensor, ir::Expr value);

/// Writes the output of a forward pass: y = xhat * scale + beta, as far as scale and beta exist.
void write_layer(ir::Builder& b, const Spec& spec, ir::Expr xhat);

/// Writes the outputs of a backward pass: dx, dresidual_in and amax from the gradient of h, dgamma and dbeta.
void write_gradients(ir::Builder& b, const Spec& spec, ir::Expr gradient, ir::Expr xhat);

}  // namespace normjit::frontend
