// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/gpu.h"
#include "timed_problem.h"

#include <memory>

namespace normjit::cuda {

/// `unavailable` when the tensors would take more than half of the GPU's free memory, or the deadline passes while they
/// are made. Until it is gone, what the calling thread does with the GPU is no part of a graph that another thread is
/// capturing, and does not disturb that.
OpenedProblem open_timed_problem(std::shared_ptr<const Gpu> gpu, const Spec& spec, Batch batch,
                                 const Deadline& deadline);

}  // namespace normjit::cuda
