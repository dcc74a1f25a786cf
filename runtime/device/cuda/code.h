// SPDX-License-Identifier: Apache-2.0
// GPU code that the driver has loaded.
#pragma once

#include "device/cuda/gpu.h"

#include "normjit/artifact.h"

#include <memory>
#include <span>
#include <string>

namespace normjit::cuda {

class Code {
  public:
    /// Loads a cubin, or lets the driver translate PTX. Fails with `unavailable` if the driver cannot use this code.
    /// With a driver older than CUDA 12.0, the code belongs to the current context, otherwise to every context of the
    /// GPU.
    static Expected<std::unique_ptr<const Code>> load(std::shared_ptr<const Gpu> gpu, CodeFormat format,
                                                      std::span<const uint8_t> bytes);
    ~Code();
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;

    /// What a launch needs beyond the default limits.
    struct Needs {
        int64_t shared_bytes = 0;
        int cluster = 1;
    };

    /// Returns the kernel with this name, in the form that cuLaunchKernelEx takes, loaded in the current context.
    Expected<Function> function(const std::string& name, const Needs& needs) const;

  private:
    explicit Code(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}
    Result open(const void* image, int* options, void** values, unsigned count);
    Status set(Function function, const std::string& name, FunctionAttribute attribute, int64_t value) const;
    Status preload(Function function) const;

    const std::shared_ptr<const Gpu> gpu_;
    Library library_ = nullptr;
    Module module_ = nullptr;
};

}  // namespace normjit::cuda
