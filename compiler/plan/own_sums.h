// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

#include "normjit/operand.h"

namespace normjit::plan {

/// Copies the sums that both outputs per slice and outputs for all slices need, because a sum over the rows of one
/// slice and the sum over all rows have different partials.
ir::Function with_own_sums(ir::Function function, const OperandList& operands);

}  // namespace normjit::plan
