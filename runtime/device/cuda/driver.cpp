// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver.h"

#include "support/lasting.h"
#include "support/try.h"
#include "system/environment.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace normjit::cuda {

namespace {

/// The first driver with cuLaunchKernelEx.
constexpr int oldest_version = 11080;

template <class FunctionPointer>
FunctionPointer find(void* library, const char* symbol) {
    return reinterpret_cast<FunctionPointer>(dlsym(library, symbol));
}

Status too_old(std::string_view what) {
    return unavailable(
        fmt::format("cuda: the driver is too old: {}; it must support CUDA {}", what, version_text(oldest_version)));
}

Status read_version(void* library, Driver& driver) {
    const auto get_version = find<decltype(Driver::cuDriverGetVersion)>(library, "cuDriverGetVersion");
    if (get_version == nullptr || get_version(&driver.version) != error_none) return too_old("it tells no version");
    if (driver.version >= oldest_version) return {};
    return too_old(fmt::format("it supports CUDA {}", version_text(driver.version)));
}

Status find_functions(void* library, Driver& driver) {
#define FUNCTION(member, symbol, parameters)                         \
    driver.member = find<decltype(Driver::member)>(library, symbol); \
    if (driver.member == nullptr) return too_old("it lacks " symbol);
#define OPTIONAL(member, symbol, parameters) driver.member = find<decltype(Driver::member)>(library, symbol);
#include "device/cuda/driver_functions.def"
    return {};
}

Status initialise(const Driver& driver) {
    int devices = 0;
    Result result = driver.cuInit(0);
    if (result == error_none) result = driver.cuDeviceGetCount(&devices);
    if (result == error_no_device || (result == error_none && devices == 0)) {
        return unavailable("cuda: the driver finds no device");
    }
    if (result == error_stub_library) return unavailable("cuda: libcuda.so.1 is a stub for linking, not a driver");
    if (result == error_none) return {};
    return unavailable("cuda: the driver does not start: " + driver.error(result, "cuInit").message());
}

}  // namespace

bool Driver::has_libraries() const {
    return cuLibraryLoadData && cuLibraryUnload && cuLibraryGetKernel && cuKernelSetAttribute && cuKernelGetFunction;
}

Status Driver::error(Result result, const char* what) const {
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    const std::string number = fmt::format("error {}", result);
    const char* advice = result == error_not_initialized
                             ? "; a child of fork() cannot use the GPUs that its parent used: start it by exec or spawn"
                             : "";
    return failed(fmt::format("cuda: {}: {}, {}{}", what, name ? name : number, text ? text : "unknown", advice));
}

Expected<Driver> open_driver(const char* library) {
    // The library is never closed, because the driver has its own threads.
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* reason = dlerror();
        return unavailable(fmt::format("cuda: no driver: {}", reason ? reason : library));
    }
    Driver driver;
    NORMJIT_RETURN_IF_ERROR(read_version(handle, driver));
    NORMJIT_RETURN_IF_ERROR(find_functions(handle, driver));
    NORMJIT_RETURN_IF_ERROR(initialise(driver));
    return driver;
}

Expected<const Driver*> driver() {
    return opened_once([] {
        const std::string given = environment() ? environment()->cuda_driver : "";
        return open_driver(given.empty() ? "libcuda.so.1" : given.c_str());
    });
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace normjit::cuda
