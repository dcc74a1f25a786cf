// SPDX-License-Identifier: Apache-2.0
// Groups of columns, which group_max() makes of each row: runs of one length that lie beside each other. A value that is
// computed from group_max(), [M] values and numbers alone is the same for all columns of a group. It has the shape [M,N],
// and an output of it, [M,N/G], one element for each group.
#pragma once

#include "ir/ir.h"

namespace normjit::ir {

/// The columns of a group are a power of two. Several vectors of each CPU make one, and lanes of a warp share it.
inline constexpr int64_t fewest_group_columns = 16, most_group_columns = 256;

/// Returns the columns of a group; 0 if the function has no group_max.
int64_t group_columns(const Function& function);

/// Marks the values that are the same for all columns of a group.
PerValue<bool> same_in_groups(const Function& function);

/// Checks one group_max: its operand is [M,N], and its second a number that rows can be divided by.
Status check_group_size(const Function& function, ValueId operand, ValueId columns);

/// Checks that all groups of a function have one size, and that no reduction depends on one. A function with groups has
/// no sums over the rows, and none of rows in halves.
Status check_groups(const Function& function);

}  // namespace normjit::ir
