// SPDX-License-Identifier: Apache-2.0
// Device memory for tools and tests. An engine works on its caller's memory.
#pragma once

#include "device/cuda/gpu.h"

#include "normjit/status.h"

#include <cstdint>
#include <memory>

namespace normjit::cuda {

class DeviceMemory {
  public:
    DeviceMemory() = default;
    /// Allocates in the current context if it belongs to the GPU, otherwise in the primary one. Aligned to 256 bytes.
    static Expected<DeviceMemory> allocate(std::shared_ptr<const Gpu> gpu, int64_t bytes);
    DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
    DeviceMemory& operator=(DeviceMemory&& other) noexcept;
    ~DeviceMemory();

    void* data() const { return reinterpret_cast<void*>(pointer_); }
    int64_t bytes() const { return bytes_; }

    /// Copy to or from the memory, `at` bytes after its start. These calls return when the copy has ended.
    Status write(int64_t at, const void* from, int64_t bytes) const;
    Status read(int64_t at, void* to, int64_t bytes) const;
    Status fill(unsigned char value) const;
    /// Repeats the first `bytes` bytes in the rest of the memory.
    Status repeat(int64_t bytes) const;

  private:
    std::shared_ptr<const Gpu> gpu_;
    DevicePointer pointer_ = 0;
    int64_t bytes_ = 0;
};

}  // namespace normjit::cuda
