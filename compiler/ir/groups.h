// SPDX-License-Identifier: Apache-2.0
// Groups of columns: group_max() divides each row into adjacent runs of one length. A value that is computed only from
// group_max(), [M] values and numbers is the same for all columns of a group. Its shape is [M,N]; an output [M,N/G]
// stores one element of it for each group.
#pragma once

#include "ir/ir.h"

namespace normjit::ir {

/// The number of columns in a group is a power of two, so that a group consists of whole vectors on every CPU, and
/// lanes of one warp can share it.
inline constexpr int64_t fewest_group_columns = 16, most_group_columns = 256;

/// Returns the number of columns in a group; 0 if the function has no group_max.
int64_t group_columns(const Function& function);

/// Marks the values that are the same for all columns of a group.
PerValue<bool> same_in_groups(const Function& function);

/// Checks one group_max: its first operand must be [M,N], its second a number that divides the number of columns.
Status check_group_size(const Function& function, ValueId operand, ValueId columns);

/// Checks that all groups of a function have one size, and that no reduction depends on one. A function with groups may
/// have no sums over the rows, and neither partner() nor neighbour().
Status check_groups(const Function& function);

}  // namespace normjit::ir
