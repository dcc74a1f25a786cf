// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/gpu.h"

#include "support/try.h"

#include <fmt/format.h>

namespace normjit::cuda {

Expected<std::shared_ptr<const Gpu>> Gpu::open(int ordinal) {
    NORMJIT_TRY(const Driver* driver, cuda::driver());
    return open(*driver, ordinal);
}

Expected<std::shared_ptr<const Gpu>> Gpu::open(const Driver& driver, int ordinal) {
    std::shared_ptr<Gpu> gpu(new Gpu(driver));
    NORMJIT_RETURN_IF_ERROR(gpu->read(ordinal));
    return std::shared_ptr<const Gpu>(std::move(gpu));
}

Gpu::~Gpu() {
    if (primary_.load() != nullptr) driver_.cuDevicePrimaryCtxRelease(handle_);
}

Status Gpu::read(int ordinal) {
    int count = 0;
    NORMJIT_RETURN_IF_ERROR(driver_.check(driver_.cuDeviceGetCount(&count), "cuDeviceGetCount"));
    if (ordinal < 0 || ordinal >= count) {
        return unavailable(fmt::format("cuda: no device {}; this process sees {}", ordinal, count));
    }
    ordinal_ = ordinal;
    NORMJIT_RETURN_IF_ERROR(driver_.check(driver_.cuDeviceGet(&handle_, ordinal), "cuDeviceGet"));
    char name[256] = {};
    NORMJIT_RETURN_IF_ERROR(driver_.check(driver_.cuDeviceGetName(name, sizeof name - 1, handle_), "cuDeviceGetName"));
    name_ = name;

    Result result = error_none;
    const auto attribute = [&](DeviceAttribute which) {
        int value = 0;
        if (result == error_none) result = driver_.cuDeviceGetAttribute(&value, which, handle_);
        return value;
    };
    target_.isa = Isa::cuda;
    target_.cuda.sm = 10 * attribute(compute_capability_major) + attribute(compute_capability_minor);
    target_.cuda.sm_count = attribute(multiprocessor_count);
    target_.cuda.shared_bytes = attribute(max_shared_memory_per_block_optin);
    target_.cuda.l2_bytes = attribute(l2_cache_size);
    return driver_.check(result, "cuDeviceGetAttribute");
}

Result Gpu::primary(Context& context) const {
    context = primary_.load(std::memory_order_acquire);
    if (context != nullptr) return error_none;
    const Result result = driver_.cuDevicePrimaryCtxRetain(&context, handle_);
    if (result != error_none) return result;
    Context none = nullptr;
    if (!primary_.compare_exchange_strong(none, context)) driver_.cuDevicePrimaryCtxRelease(handle_);
    return error_none;
}

bool Gpu::is_current() const {
    Context current = nullptr;
    if (driver_.cuCtxGetCurrent(&current) != error_none || current == nullptr) return false;
    if (current == primary_.load(std::memory_order_acquire)) return true;
    DeviceHandle device = 0;
    return driver_.cuCtxGetDevice(&device) == error_none && device == handle_;
}

ContextScope::ContextScope(const Gpu& gpu) : gpu_(gpu) {
    if (gpu.is_current()) return;
    Context primary = nullptr;
    result_ = gpu.primary(primary);
    if (result_ == error_none) result_ = gpu.driver().cuCtxPushCurrent(primary);
    pushed_ = result_ == error_none;
}

ContextScope::~ContextScope() {
    Context popped = nullptr;
    if (pushed_) gpu_.driver().cuCtxPopCurrent(&popped);
}

Status check_not_capturing(const Gpu& gpu, void* stream) {
    const ContextScope scope(gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    int status = capture_none;
    const Result result = gpu.driver().cuStreamIsCapturing(static_cast<Stream>(stream), &status);
    if (result == error_capture_implicit || (result == error_none && status != capture_none)) {
        return capturing("cuda: a graph is being captured; compile and load before, launch inside");
    }
    return gpu.driver().check(result, "cuStreamIsCapturing");
}

}  // namespace normjit::cuda
