// SPDX-License-Identifier: Apache-2.0
// bf16 tensors for launches on a GPU, for tests that compare launches with each other.
#pragma once

#include "device/cuda/memory.h"

#include "normjit/engine.h"
#include "normjit/kernel.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace normjit::test {

/// Returns the GPU that NORMJIT_TEST_DEVICE names, or the first one. If there is none, prints why and returns nothing.
std::optional<Engine> gpu_engine();
std::shared_ptr<const cuda::Gpu> gpu_of(const Engine& engine);

/// Returns a kernel for "<norm> cols=... x=bf16 gamma=f32", with the heuristic's schedule.
Kernel gpu_kernel(const Engine& engine, const char* spec);
/// Checks that a launch succeeds.
void launch(const Kernel& kernel, const Arguments& arguments);

class GpuTensors {
  public:
    /// Inputs are ordinary numbers with random bits from a seed; x and dy repeat their first `distinct` rows.
    GpuTensors(const Engine& engine, const Kernel& kernel, int64_t rows, int64_t distinct, uint64_t seed = 1);

    Arguments arguments(void* stream) const;

    using Bytes = std::vector<std::byte>;
    /// Returns bytes of an output: all of them, or those of some rows of dx.
    Bytes read(Tensor tensor) const { return read(tensor, 0, memory_[tensor].bytes()); }
    Bytes read(Tensor tensor, int64_t at, int64_t bytes) const;
    /// Returns all outputs, one after the other.
    Bytes outputs() const;
    /// Fills outputs and workspace with NaNs.
    void spoil() const;

  private:
    Spec spec_;
    PerTensor<cuda::DeviceMemory> memory_;
    cuda::DeviceMemory workspace_;
    Arguments arguments_;
};

}  // namespace normjit::test
