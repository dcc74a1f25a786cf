// SPDX-License-Identifier: Apache-2.0
// Which CUDA schedules can run: the rules of templates/cuda with reasons, and what shared memory and registers allow.
#pragma once

#include "plan/cuda.h"

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

namespace normjit::schedule {

/// Every variant of the plan. The schedule's numbers must be inside their ranges (check_ranges).
Status check_cuda(const Spec& spec, const plan::CudaPlan& cuda, const Target& target);

Status check_cuda(const Spec& spec, const plan::CudaOperands& operands, const plan::CudaVariant& variant,
                  const Target& target);

/// Whether blocks_per_sm blocks find their shared memory in one multiprocessor.
bool shared_suffices(const plan::CudaVariant& variant, const Target& target);

/// As many row groups as run at once.
int64_t cuda_row_groups(const Spec& spec, const Target& target, const CudaSchedule& schedule);

Schedule heuristic_cuda(const Spec& spec, const Target& target);

}  // namespace normjit::schedule
