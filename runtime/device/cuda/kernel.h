// SPDX-License-Identifier: Apache-2.0
// A kernel on a GPU: its code, and its launches.
#pragma once

#include "device/cuda/gpu.h"
#include "kernel/kernel_impl.h"

#include <memory>

namespace normjit::cuda {

/// Loads a kernel. The artifact must have passed check_cuda_artifact().
Expected<std::shared_ptr<const Kernel::Impl>> load_kernel(std::shared_ptr<const Gpu> gpu, const Artifact& artifact);

}  // namespace normjit::cuda
