// SPDX-License-Identifier: Apache-2.0
// A problem's tensors in GPU memory.
#pragma once

#include "device/cuda/memory.h"
#include "problem.h"

#include "normjit/kernel.h"
#include "normjit/status.h"

#include <cstdint>
#include <memory>

namespace normjit::cli {

class GpuProblem {
  public:
    /// Copies the inputs of `host`. With more rows than that has, its rows are repeated; they have to fill whole
    /// tensors evenly only as far as a measurement cares. `unavailable` when the GPU has less memory than all of it
    /// takes.
    static Expected<GpuProblem> upload(std::shared_ptr<const cuda::Gpu> gpu, const Kernel& kernel, const Problem& host,
                                       Batch batch);

    /// Makes the workspace large enough for another kernel of this problem. Arguments made before are no longer valid
    /// when it grows.
    Status fit(const Kernel& kernel);

    /// Fills the outputs with NaN, those that are added to with what they held at first.
    Status spoil_outputs() const;

    /// Copies the outputs back; only with as many rows as `host` has.
    Status download(const Problem& host) const;

    /// On this stream.
    Arguments arguments(void* stream) const;
    const Spec& spec() const { return spec_; }
    Batch batch() const { return arguments_.batch(); }
    const cuda::DeviceMemory& tensor(Tensor tensor) const { return tensors_[tensor]; }

  private:
    std::shared_ptr<const cuda::Gpu> gpu_;
    Spec spec_;
    PerTensor<cuda::DeviceMemory> tensors_;
    PerTensor<std::vector<char>> before_;  ///< of outputs that are added to
    cuda::DeviceMemory workspace_;
    Arguments arguments_;
};

}  // namespace normjit::cli
