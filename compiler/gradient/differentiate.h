// SPDX-License-Identifier: Apache-2.0
// The gradient of a formula: reverse-mode differentiation of the IR, written down as an expert would.
//
// Adjoints are kept as sums of products (terms.h) and only written at the end, so that row factors are taken out of row
// means, the row mean of a centred row is 0, and terms that cancel disappear. A value of shape [M] stands for a whole
// row; its adjoint is kept divided by N, so that every row sum is a row mean and no factor N appears.
//
// Maths: Griewank, Walther, "Evaluating Derivatives" (2008), section 3.2.
#pragma once

#include "ir/builder.h"

#include <span>
#include <vector>

namespace normjit::gradient {

/// A value of the forward pass, and the tensor that the backward pass reads instead.
struct Given {
    ir::Expr value, tensor;
};

/// Returns the gradients of the values `wanted`, appended to their builder's function. `gradients` names the outputs of
/// the forward pass and the tensors that hold their gradients; the gradient of an [N] value is its col_sum(). Every use
/// of a value in `saved` reads the tensor instead, but is differentiated like the value. Fails if no output depends on
/// a wanted value, or if one depends on it through an operation without a derivative.
Expected<std::vector<ir::Expr>> differentiate(ir::Builder& builder, std::span<const Given> gradients,
                                              std::span<const ir::Expr> wanted, std::span<const Given> saved);

/// Returns for each of the values `wanted` whether its gradient is 0 because no output depends on it. Takes the same
/// arguments as differentiate(). It also appends values to the function, which can be ignored.
Expected<std::vector<bool>> are_zero(ir::Builder& builder, std::span<const Given> gradients,
                                     std::span<const ir::Expr> wanted, std::span<const Given> saved);

}  // namespace normjit::gradient
