// SPDX-License-Identifier: Apache-2.0
// bf16 tensors of a launch on a GPU, for tests that compare launches with each other.
#pragma once

#include "device/cuda/memory.h"

#include "normjit/engine.h"
#include "normjit/kernel.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace normjit::test {

/// The GPU of NORMJIT_TEST_DEVICE, or the first; nothing, after a line that says why, when there is none.
std::optional<Engine> gpu_engine();
std::shared_ptr<const cuda::Gpu> gpu_of(const Engine& engine);

/// A kernel for "<norm> cols=... x=bf16 gamma=f32", by the heuristic's schedule.
Kernel gpu_kernel(const Engine& engine, const char* spec);

class GpuTensors {
  public:
    /// Inputs of any bits of ordinary numbers, from a seed; x and dy repeat their first `distinct` rows.
    GpuTensors(const Engine& engine, const Kernel& kernel, int64_t rows, int64_t distinct, uint64_t seed = 1);

    Arguments arguments(void* stream) const;

    using Bytes = std::vector<std::byte>;
    /// Bytes of an output: all of them, or some rows of dx.
    Bytes read(Tensor tensor) const { return read(tensor, 0, memory_[tensor].bytes()); }
    Bytes read(Tensor tensor, int64_t at, int64_t bytes) const;
    /// All outputs, one after the other.
    Bytes outputs() const;
    /// Outputs and workspace full of NaNs.
    void spoil() const;

  private:
    Spec spec_;
    PerTensor<cuda::DeviceMemory> memory_;
    cuda::DeviceMemory workspace_;
    Arguments arguments_;
};

}  // namespace normjit::test
