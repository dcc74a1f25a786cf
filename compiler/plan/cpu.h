// SPDX-License-Identifier: Apache-2.0
// The CPU part of a Plan: which values are kept between sweeps, what is prefetched, and the sizes of a launch.
#pragma once

#include "plan/plan.h"

namespace normjit::plan {

/// Decides which values the sweeps keep for later ones. Expects the sweeps of a plan that keeps nothing.
CpuPlan make_cpu(const Plan& plan);

/// Returns the operands of this shape that the elements of a sweep read. Each value is listed once.
std::vector<ValueId> operands_of_shape(const ir::Function& function, const plan::Sweep& sweep, ir::Shape shape);

/// Distributes the prefetches of the input matrices over the sweeps, so that memory is busy in all of them. The last
/// sweep reads from L1, so it moves the least data between L2 and L1.
void share_out_prefetches(Plan& plan);

/// If some sums cover one slice and others all slices, refuses more of them than a launch can distinguish.
Status check_sums_of_slices(const Plan& plan);

/// Returns how a launch is divided and what the workspace holds.
Geometry cpu_geometry(const Plan& plan);

}  // namespace normjit::plan
