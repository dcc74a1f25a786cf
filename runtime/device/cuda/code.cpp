// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/code.h"

#include "support/try.h"

#include <array>

#include <fmt/format.h>

namespace normjit::cuda {

namespace {

/// What every kernel may use without a setting at load time.
constexpr int64_t usual_shared_bytes = 48 << 10;
constexpr int usual_cluster = 8;

}  // namespace

Expected<std::unique_ptr<const Code>> Code::load(std::shared_ptr<const Gpu> gpu, CodeFormat format,
                                                 std::span<const uint8_t> bytes) {
    std::string text;  // the driver requires PTX to end in a zero
    const void* image = bytes.data();
    if (format == CodeFormat::ptx) {
        text.assign(bytes.begin(), bytes.end());
        image = text.c_str();
    }
    std::array<char, 4096> log{};
    int options[] = {jit_error_log_buffer, jit_error_log_buffer_size_bytes};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
    std::unique_ptr<Code> code(new Code(std::move(gpu)));
    const Result result = code->open(image, options, values, 2);
    if (result == error_none) return std::unique_ptr<const Code>(std::move(code));
    const Status status = code->gpu_->driver().error(result, "loading the code");
    const std::string_view reason = log.data();
    const std::string message = reason.empty() ? status.message() : fmt::format("{}\n{}", status.message(), reason);
    const bool not_here = result == error_no_binary_for_gpu || result == error_unsupported_ptx_version;
    return not_here ? unavailable(message) : failed(message);
}

Result Code::open(const void* image, int* options, void** values, unsigned count) {
    const Driver& driver = gpu_->driver();
    if (!driver.has_libraries()) return driver.cuModuleLoadDataEx(&module_, image, count, options, values);
    return driver.cuLibraryLoadData(&library_, image, options, values, count, nullptr, nullptr, 0);
}

Code::~Code() {
    const Driver& driver = gpu_->driver();
    const RelaxedCapture relaxed(driver);  // the last user may be destroyed at any time
    if (library_ != nullptr) driver.cuLibraryUnload(library_);
    if (module_ == nullptr) return;
    const ContextScope scope(*gpu_);
    driver.cuModuleUnload(module_);
}

Expected<Function> Code::function(const std::string& name, const Needs& needs) const {
    const Driver& driver = gpu_->driver();
    Function function = nullptr;
    Result result = error_none;
    if (library_ != nullptr) {
        KernelHandle kernel = nullptr;
        result = driver.cuLibraryGetKernel(&kernel, library_, name.c_str());
        function = reinterpret_cast<Function>(kernel);  // cuLaunchKernelEx takes either, as cuda.h says
    } else {
        result = driver.cuModuleGetFunction(&function, module_, name.c_str());
    }
    if (result != error_none) {
        return invalid_argument(fmt::format("load: the artifact's code has no kernel {}: {}", name,
                                            driver.error(result, "looking it up").message()));
    }
    if (needs.shared_bytes > usual_shared_bytes) {
        NORMJIT_RETURN_IF_ERROR(set(function, name, max_dynamic_shared_size_bytes, needs.shared_bytes));
    }
    if (needs.cluster > usual_cluster) {
        NORMJIT_RETURN_IF_ERROR(set(function, name, non_portable_cluster_size_allowed, 1));
    }
    NORMJIT_RETURN_IF_ERROR(preload(function));
    return function;
}

Status Code::set(Function function, const std::string& name, FunctionAttribute attribute, int64_t value) const {
    const Driver& driver = gpu_->driver();
    const int number = static_cast<int>(value);
    const Result result =
        library_ != nullptr
            ? driver.cuKernelSetAttribute(attribute, number, reinterpret_cast<KernelHandle>(function), gpu_->handle())
            : driver.cuFuncSetAttribute(function, attribute, number);
    if (result == error_none) return {};
    return unavailable(fmt::format("load: kernel {} cannot have {} for attribute {}: {}", name, value,
                                   static_cast<int>(attribute), driver.error(result, "setting it").message()));
}

/// Loads the kernel now, because drivers load a kernel at its first launch, which a capture would not allow.
Status Code::preload(Function function) const {
    const Driver& driver = gpu_->driver();
    if (library_ != nullptr) {
        const auto kernel = reinterpret_cast<KernelHandle>(function);
        NORMJIT_RETURN_IF_ERROR(driver.check(driver.cuKernelGetFunction(&function, kernel), "cuKernelGetFunction"));
    }
    if (driver.cuFuncLoad != nullptr) return driver.check(driver.cuFuncLoad(function), "cuFuncLoad");
    int registers = 0;  // querying an attribute of a kernel loads the kernel
    return driver.check(driver.cuFuncGetAttribute(&registers, num_regs, function), "cuFuncGetAttribute");
}

}  // namespace normjit::cuda
