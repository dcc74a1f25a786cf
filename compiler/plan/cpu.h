// SPDX-License-Identifier: Apache-2.0
// The CPU part of a Plan: what waits between sweeps, what is fetched ahead, the sizes of a launch.
#pragma once

#include "ir/ir.h"

#include "normjit/artifact.h"

#include <vector>

namespace normjit::plan {

struct Plan;

struct CpuPlan {
    std::vector<ir::ValueId> cached_columns;  ///< [N] values kept in the workspace of a row group, after its partials
    std::vector<ir::ValueId>
        cached_elements;  ///< [M,N] values of a row block that wait on the stack for the last sweep
};

/// The plan's sweeps must be there, as if nothing waited between them.
CpuPlan make_cpu(const Plan& plan);

/// The matrices that are read, dealt out over the sweeps, so that memory has work in all of them. Between L2 and L1 the
/// last sweep has least to move: it reads from L1.
void share_out_prefetches(Plan& plan);

/// What a launch cuts, and what the workspace holds.
Geometry cpu_geometry(const Plan& plan);

}  // namespace normjit::plan
