// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/memory.h"

#include "support/try.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace normjit::cuda {

namespace {

/// Waits until a copy or fill has ended. The driver's call returns earlier, and other streams do not wait for it.
Status finish(const Driver& driver, Result result, const char* what) {
    return driver.check(result == error_none ? driver.cuStreamSynchronize(nullptr) : result, what);
}

}  // namespace

Expected<DeviceMemory> DeviceMemory::allocate(std::shared_ptr<const Gpu> gpu, int64_t bytes) {
    const ContextScope scope(*gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    DeviceMemory memory;
    const auto wanted = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    const Result result = gpu->driver().cuMemAlloc(&memory.pointer_, wanted);
    if (result != error_none) {
        const Status status = gpu->driver().error(result, "cuMemAlloc");
        return failed(fmt::format("{}; asked for {} bytes", status.message(), bytes));
    }
    memory.gpu_ = std::move(gpu);
    memory.bytes_ = bytes;
    return memory;
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

DeviceMemory::~DeviceMemory() {
    if (!gpu_) return;
    const ContextScope scope(*gpu_);
    gpu_->driver().cuMemFree(pointer_);
}

Status DeviceMemory::write(int64_t at, const void* from, int64_t bytes) const {
    if (bytes == 0) return {};
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    const Driver& driver = gpu_->driver();
    return finish(driver,
                  driver.cuMemcpyHtoD(pointer_ + static_cast<DevicePointer>(at), from, static_cast<size_t>(bytes)),
                  "cuMemcpyHtoD");
}

Status DeviceMemory::read(int64_t at, void* to, int64_t bytes) const {
    if (bytes == 0) return {};
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    const Driver& driver = gpu_->driver();
    return driver.check(driver.cuMemcpyDtoH(to, pointer_ + static_cast<DevicePointer>(at), static_cast<size_t>(bytes)),
                        "cuMemcpyDtoH");
}

Status DeviceMemory::fill(unsigned char value) const {
    if (bytes_ == 0) return {};
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    const Driver& driver = gpu_->driver();
    return finish(driver, driver.cuMemsetD8Async(pointer_, value, static_cast<size_t>(bytes_), nullptr), "cuMemsetD8");
}

Status DeviceMemory::repeat(int64_t bytes) const {
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    const Driver& driver = gpu_->driver();
    for (int64_t filled = bytes; filled > 0 && filled < bytes_; filled *= 2) {
        const auto next = static_cast<size_t>(std::min(filled, bytes_ - filled));
        const DevicePointer to = pointer_ + static_cast<DevicePointer>(filled);
        NORMJIT_RETURN_IF_ERROR(driver.check(driver.cuMemcpyDtoD(to, pointer_, next), "cuMemcpyDtoD"));
    }
    return finish(driver, error_none, "cuMemcpyDtoD");
}

}  // namespace normjit::cuda
