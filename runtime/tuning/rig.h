// SPDX-License-Identifier: Apache-2.0
// Where an engine times kernels of one problem, on memory of its own.
#pragma once

#include "normjit/kernel.h"
#include "normjit/spec.h"
#include "normjit/status.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace normjit {
class Device;
}
namespace normjit::cuda {
class Gpu;
}

namespace normjit::tuning {

class Rig {
  public:
    virtual ~Rig() = default;

    /// seconds[k][i]: one launch of kernel k in round i. A round times each once.
    virtual Expected<std::vector<std::vector<double>>> time(std::span<const Kernel> kernels, int rounds) = 0;
};

using OpenedRig = Expected<std::unique_ptr<Rig>>;
using OpenRig = std::function<OpenedRig()>;

/// `unavailable` when the tensors would take more than a quarter of the machine's memory. There is one set of them:
/// what fits the caches is measured in the caches.
OpenedRig open_cpu_rig(const Spec& spec, int64_t rows);
/// `unavailable` when they would take more than half of the GPU's free memory. Until it is gone, what the calling
/// thread does with the GPU is no part of a graph that another thread is capturing, and does not disturb that.
OpenedRig open_cuda_rig(std::shared_ptr<const cuda::Gpu> gpu, const Spec& spec, int64_t rows);

/// Numbers that no arithmetic of a spec makes slow or infinite: neither tiny nor 0.
void fill_with_numbers(DType type, void* memory, int64_t bytes);

}  // namespace normjit::tuning
