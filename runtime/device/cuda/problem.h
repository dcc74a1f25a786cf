// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/gpu.h"
#include "kernel/timed_problem.h"

#include <memory>

namespace normjit::cuda {

/// Opens a problem for timing. Fails with `unavailable` if the tensors would take more than half of the GPU's free
/// memory, or if the deadline passes while they are made. Until the problem is destroyed, GPU work of the calling
/// thread neither joins nor disturbs a graph that another thread is capturing.
OpenedProblem open_timed_problem(std::shared_ptr<const Gpu> gpu, const Spec& spec, Batch batch,
                                 const Deadline& deadline);

}  // namespace normjit::cuda
