// SPDX-License-Identifier: Apache-2.0
// A problem's tensors in GPU memory.
#pragma once

#include "device/cuda/memory.h"
#include "problem/problem.h"

#include "normjit/kernel.h"
#include "normjit/status.h"

#include <cstdint>
#include <memory>

namespace normjit::cli {

class GpuProblem {
  public:
    /// Copies the inputs of `host`. If the batch has more rows, they repeat the rows of `host`, not necessarily a whole
    /// number of times. Fails with `unavailable` if the GPU has too little memory.
    static Expected<GpuProblem> upload(std::shared_ptr<const cuda::Gpu> gpu, const Kernel& kernel, const Problem& host,
                                       Batch batch);

    /// Makes the workspace large enough for another kernel of this problem. If it grows, arguments that were made
    /// before become invalid.
    Status fit(const Kernel& kernel);

    /// Fills the outputs with NaN. Outputs that are added to get their initial values.
    Status spoil_outputs() const;

    /// Copies the outputs back, but only as many rows as `host` has.
    Status download(const Problem& host) const;

    /// Returns arguments for this stream.
    Arguments arguments(void* stream) const;
    const Spec& spec() const { return spec_; }
    Batch batch() const { return arguments_.batch(); }
    const cuda::DeviceMemory& tensor(Tensor tensor) const { return tensors_[tensor]; }

  private:
    std::shared_ptr<const cuda::Gpu> gpu_;
    Spec spec_;
    PerTensor<cuda::DeviceMemory> tensors_;
    PerTensor<std::vector<char>> before_;  ///< old values of outputs that are accumulated
    cuda::DeviceMemory workspace_;
    Arguments arguments_;
};

}  // namespace normjit::cli
