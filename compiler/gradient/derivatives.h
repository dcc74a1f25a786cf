// SPDX-License-Identifier: Apache-2.0
// The derivatives of functions of one value, as sums of products.
#pragma once

#include "gradient/products.h"
#include "ir/builder.h"

#include <optional>

namespace normjit::gradient {

/// Returns the derivative of a function with respect to its operand, computed from values of the forward pass and new
/// ones; nothing if the op is not a function or has no derivative. The derivative of abs at 0 is 0.
std::optional<Sum> derivative(ir::Builder& builder, const Products& products, ir::ValueId id);

}  // namespace normjit::gradient
