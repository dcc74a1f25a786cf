// SPDX-License-Identifier: Apache-2.0
// The CPU part of a Plan: the values kept between sweeps, what is prefetched, the sizes of a launch.
#pragma once

#include "plan/plan.h"

namespace normjit::plan {

/// Decides what the sweeps keep for later ones. Requires the plan's sweeps as they are if nothing is kept.
CpuPlan make_cpu(const Plan& plan);

/// Distributes the prefetches of the input matrices over the sweeps, so that memory has work in all of them. The last
/// sweep reads from L1, so it has the least to move between L2 and L1.
void share_out_prefetches(Plan& plan);

/// Returns how a launch is divided, and what the workspace holds.
Geometry cpu_geometry(const Plan& plan);

}  // namespace normjit::plan
