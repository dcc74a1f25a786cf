// SPDX-License-Identifier: Apache-2.0
// The CPU part of a Plan: what is kept between sweeps, what is prefetched, the sizes of a launch.
#pragma once

#include "plan/plan.h"

namespace normjit::plan {

/// The plan's sweeps must be there, as if nothing waited between them.
CpuPlan make_cpu(const Plan& plan);

/// The matrices that are read, dealt out over the sweeps, so that memory has work in all of them. Between L2 and L1 the
/// last sweep has least to move: it reads from L1.
void share_out_prefetches(Plan& plan);

/// What a launch cuts, and what the workspace holds.
Geometry cpu_geometry(const Plan& plan);

}  // namespace normjit::plan
