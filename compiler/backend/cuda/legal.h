// SPDX-License-Identifier: Apache-2.0
// Which CUDA schedules can run: the rules of templates/cuda with reasons, and what shared memory and registers allow.
#pragma once

#include "plan/cuda.h"

#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

namespace normjit::backend::cuda {

/// Every variant of the plan. The schedule's numbers must be inside their ranges (check_ranges).
Status check(const Spec& spec, const plan::CudaPlan& cuda, const Target& target);

Status check(const Spec& spec, const OperandList& operands, const plan::CudaVariant& variant, const Target& target);

/// Whether blocks_per_sm blocks find their shared memory in one multiprocessor.
bool shared_suffices(const plan::CudaVariant& variant, const Target& target);

}  // namespace normjit::backend::cuda
