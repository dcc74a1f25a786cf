// SPDX-License-Identifier: Apache-2.0
// Decides which CUDA schedules can run: the rules of templates/cuda, and the limits of shared memory and registers.
#pragma once

#include "plan/cuda.h"

#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

namespace normjit::backend::cuda {

/// Checks every path of the plan. The schedule's numbers must be within their ranges (check_ranges).
Status check(const Spec& spec, const plan::CudaPlan& cuda, const Target& target);

Status check(const Spec& spec, const OperandList& operands, const plan::PlannedPath& planned, const Target& target);

/// True if blocks_per_sm blocks fit the shared memory of one multiprocessor.
bool shared_suffices(const plan::PlannedPath& planned, const Target& target);

}  // namespace normjit::backend::cuda
