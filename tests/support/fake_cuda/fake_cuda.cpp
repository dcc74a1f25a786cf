// SPDX-License-Identifier: Apache-2.0
// The functions of driver_functions.def, as cuda.h declares them, under the names of their newest versions. This file
// has the functions for devices, contexts, code and launches.
#include "fake_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

namespace normjit::cuda {

struct ContextObject {
    DeviceHandle device;
};
struct KernelObject {
    std::string name;
};
struct LibraryObject {
    std::vector<std::unique_ptr<KernelObject>> kernels;
    bool is_cubin = false;  ///< it has every kernel that anybody requests
};

}  // namespace normjit::cuda

using namespace normjit::cuda;
using namespace normjit::test;

namespace normjit::test {

FakeCuda fake;
std::mutex fake_mutex;

Result enter(const char* function) {
    const std::lock_guard lock(fake_mutex);
    const int number = static_cast<int>(fake.calls.size());
    fake.calls.emplace_back(function);
    if (number == fake.failing_call) return fake.failure;
    if (fake.failing == function && fake.failing_after-- <= 0) return fake.failure;
    return error_none;
}

}  // namespace normjit::test

namespace {

constexpr Result error_invalid_value = 1, error_invalid_context = 201, error_not_found = 500;

/// Handles of devices are different from their ordinals, because CUDA does not promise that they are equal.
constexpr int first_handle = 40;

ContextObject primaries[4] = {{first_handle}, {first_handle + 1}, {first_handle + 2}, {first_handle + 3}};
thread_local std::vector<Context> current;

/// Reads "devices=0 version=11000 fail=cuInit:100", for programs that a test only starts.
const bool configured = [] {
    fake.reset();
    const char* text = std::getenv("FAKE_CUDA");
    std::istringstream words(text != nullptr ? text : "");
    for (std::string word; words >> word;) {
        const std::string value = word.substr(word.find('=') + 1);
        if (word.starts_with("devices=")) fake.devices.resize(static_cast<size_t>(std::stoi(value)));
        if (word.starts_with("version=")) fake.version = std::stoi(value);
        if (word.starts_with("fail=")) {
            fake.failing = value.substr(0, value.find(':'));
            fake.failure = std::stoi(value.substr(value.find(':') + 1));
        }
    }
    return true;
}();

const FakeDeviceFacts* facts_of(DeviceHandle handle) {
    const int ordinal = handle - first_handle;
    return ordinal >= 0 && ordinal < static_cast<int>(fake.devices.size()) ? &fake.devices[static_cast<size_t>(ordinal)]
                                                                           : nullptr;
}

KernelObject* add_kernel(LibraryObject& library, const std::string& name) {
    library.kernels.push_back(std::make_unique<KernelObject>());
    library.kernels.back()->name = name;
    return library.kernels.back().get();
}

/// Returns the names of the kernels in fake_code(), or those that real code has.
std::unique_ptr<LibraryObject> load(const char* image) {
    std::istringstream words(image);
    std::string head;
    words >> head;
    auto library = std::make_unique<LibraryObject>();
    library->is_cubin = head.starts_with("\177ELF");
    if (head != "fake" && !library->is_cubin) return nullptr;
    for (std::string name; !library->is_cubin && words >> name;) add_kernel(*library, name);
    const std::lock_guard lock(fake_mutex);
    fake.images.emplace_back(image);
    ++fake.loaded;
    return library;
}

void write_log(unsigned count, const int* options, void* const* values) {
    char* buffer = nullptr;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; ++i) {
        if (options[i] == jit_error_log_buffer) buffer = static_cast<char*>(values[i]);
        if (options[i] == jit_error_log_buffer_size_bytes) bytes = reinterpret_cast<size_t>(values[i]);
    }
    if (buffer != nullptr && bytes > 0) std::strncpy(buffer, fake.jit_log.c_str(), bytes);
}

KernelObject* find(LibraryObject& library, const char* name) {
    for (const auto& kernel : library.kernels) {
        if (kernel->name == name) return kernel.get();
    }
    return library.is_cubin ? add_kernel(library, name) : nullptr;
}

Result set_attribute(const KernelObject& kernel, int attribute, int value) {
    const std::lock_guard lock(fake_mutex);
    fake.attributes[kernel.name][attribute] = value;
    return error_none;
}

KernelObject* kernel_of(Function function) { return reinterpret_cast<KernelObject*>(function); }

Result launch(const LaunchConfig& config, Function function, void** parameters) {
    FakeLaunch launch{};
    launch.kernel = kernel_of(function)->name;
    std::copy(config.grid, config.grid + 3, launch.grid.begin());
    std::copy(config.block, config.block + 3, launch.block.begin());
    launch.shared_bytes = config.shared_bytes;
    launch.stream = config.stream;
    launch.context = current.empty() ? nullptr : current.back();
    for (unsigned i = 0; i < config.attribute_count; ++i) {
        const LaunchAttribute& attribute = config.attributes[i];
        if (attribute.id == LaunchAttribute::cluster_dimension) launch.cluster = attribute.value.cluster.x;
        if (attribute.id == LaunchAttribute::programmatic_stream_serialization)
            launch.dependent = attribute.value.allowed == 1;
    }
    std::memcpy(&launch.arguments, parameters[0], sizeof launch.arguments);
    const std::lock_guard lock(fake_mutex);
    fake.launches.push_back(launch);
    return error_none;
}

}  // namespace

EXPORT FakeCuda* normjit_fake_cuda() { return &fake; }
EXPORT int normjit_fake_contexts() { return static_cast<int>(current.size()); }

EXPORT Result cuInit(unsigned) {
    ENTER(cuInit);
    return error_none;
}
EXPORT Result cuDriverGetVersion(int* version) {
    ENTER(cuDriverGetVersion);
    *version = fake.version;
    return error_none;
}
// Called while an error is reported, so it does not count as a call.
EXPORT Result cuGetErrorName(Result error, const char** text) {
    *text = error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : nullptr;
    return error_none;
}
EXPORT Result cuGetErrorString(Result error, const char** text) {
    *text = error == 719 ? "unspecified launch failure" : nullptr;
    return error_none;
}

EXPORT Result cuDeviceGetCount(int* count) {
    ENTER(cuDeviceGetCount);
    *count = static_cast<int>(fake.devices.size());
    return error_none;
}
EXPORT Result cuDeviceGet(DeviceHandle* device, int ordinal) {
    ENTER(cuDeviceGet);
    *device = first_handle + ordinal;
    return facts_of(*device) != nullptr ? error_none : error_invalid_value;
}
EXPORT Result cuDeviceGetName(char* name, int bytes, DeviceHandle device) {
    ENTER(cuDeviceGetName);
    std::strncpy(name, facts_of(device)->name, static_cast<size_t>(bytes));
    return error_none;
}
EXPORT Result cuDeviceGetAttribute(int* value, int attribute, DeviceHandle device) {
    ENTER(cuDeviceGetAttribute);
    const auto* facts = facts_of(device);
    switch (attribute) {
        case compute_capability_major: return *value = facts->sm / 10, error_none;
        case compute_capability_minor: return *value = facts->sm % 10, error_none;
        case multiprocessor_count: return *value = facts->multiprocessors, error_none;
        case max_shared_memory_per_block_optin: return *value = facts->shared_bytes, error_none;
        case l2_cache_size: return *value = facts->l2_bytes, error_none;
        default: return error_invalid_value;
    }
}

EXPORT Result cuDevicePrimaryCtxRetain(Context* context, DeviceHandle device) {
    ENTER(cuDevicePrimaryCtxRetain);
    const std::lock_guard lock(fake_mutex);
    ++fake.primary_uses[device - first_handle];
    *context = &primaries[device - first_handle];
    return error_none;
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(DeviceHandle device) {
    ENTER(cuDevicePrimaryCtxRelease);
    const std::lock_guard lock(fake_mutex);
    --fake.primary_uses[device - first_handle];
    return error_none;
}
EXPORT Result cuCtxGetCurrent(Context* context) {
    ENTER(cuCtxGetCurrent);
    *context = current.empty() ? nullptr : current.back();
    return error_none;
}
EXPORT Result cuCtxGetDevice(DeviceHandle* device) {
    ENTER(cuCtxGetDevice);
    if (current.empty()) return error_invalid_context;
    *device = current.back()->device;
    return error_none;
}
EXPORT Result cuCtxPushCurrent_v2(Context context) {
    ENTER(cuCtxPushCurrent);
    current.push_back(context);
    return error_none;
}
EXPORT Result cuCtxPopCurrent_v2(Context* context) {
    ENTER(cuCtxPopCurrent);
    if (current.empty()) return error_invalid_context;
    *context = current.back();
    current.pop_back();
    return error_none;
}
EXPORT Result cuCtxCreate_v2(Context* context, unsigned, DeviceHandle device) {
    current.push_back(*context = new ContextObject{device});
    return error_none;
}
EXPORT Result cuCtxDestroy_v2(Context context) {
    if (!current.empty() && current.back() == context) current.pop_back();
    delete context;
    return error_none;
}
EXPORT Result cuCtxSynchronize() {
    ENTER(cuCtxSynchronize);
    return error_none;
}

EXPORT Result cuModuleLoadDataEx(Module* module, const void* image, unsigned count, int* options, void** values) {
    ENTER_OUTSIDE_CAPTURES(cuModuleLoadDataEx);
    write_log(count, options, values);
    if (current.empty()) return error_invalid_context;
    *module = reinterpret_cast<Module>(load(static_cast<const char*>(image)).release());
    return *module != nullptr ? error_none : error_no_binary_for_gpu;
}
EXPORT Result cuModuleUnload(Module module) {
    ENTER_OUTSIDE_CAPTURES(cuModuleUnload);
    if (current.empty()) return error_invalid_context;
    const std::lock_guard lock(fake_mutex);
    --fake.loaded;
    delete reinterpret_cast<LibraryObject*>(module);
    return error_none;
}
EXPORT Result cuModuleGetFunction(Function* function, Module module, const char* name) {
    ENTER(cuModuleGetFunction);
    *function = reinterpret_cast<Function>(find(*reinterpret_cast<LibraryObject*>(module), name));
    return *function != nullptr ? error_none : error_not_found;
}
EXPORT Result cuFuncSetAttribute(Function function, int attribute, int value) {
    ENTER(cuFuncSetAttribute);
    return set_attribute(*kernel_of(function), attribute, value);
}
EXPORT Result cuFuncGetAttribute(int* value, int, Function) {
    ENTER(cuFuncGetAttribute);
    *value = 0;
    const std::lock_guard lock(fake_mutex);
    ++fake.preloaded;
    return current.empty() ? error_invalid_context : error_none;
}
#ifndef FAKE_CUDA_OLD  // a driver of CUDA 11.8 has none of these
EXPORT Result cuLibraryLoadData(Library* library, const void* image, int* options, void** values, unsigned count, int*,
                                void**, unsigned) {
    ENTER_OUTSIDE_CAPTURES(cuLibraryLoadData);
    write_log(count, options, values);
    *library = load(static_cast<const char*>(image)).release();
    return *library != nullptr ? error_none : error_no_binary_for_gpu;
}
EXPORT Result cuLibraryUnload(Library library) {
    ENTER_OUTSIDE_CAPTURES(cuLibraryUnload);
    const std::lock_guard lock(fake_mutex);
    --fake.loaded;
    delete library;
    return error_none;
}
EXPORT Result cuLibraryGetKernel(KernelHandle* kernel, Library library, const char* name) {
    ENTER(cuLibraryGetKernel);
    *kernel = find(*library, name);
    return *kernel != nullptr ? error_none : error_not_found;
}
EXPORT Result cuKernelSetAttribute(int attribute, int value, KernelHandle kernel, DeviceHandle device) {
    ENTER(cuKernelSetAttribute);
    return facts_of(device) != nullptr ? set_attribute(*kernel, attribute, value) : error_invalid_value;
}
EXPORT Result cuKernelGetFunction(Function* function, KernelHandle kernel) {
    ENTER(cuKernelGetFunction);
    *function = reinterpret_cast<Function>(kernel);
    return current.empty() ? error_invalid_context : error_none;
}
EXPORT Result cuFuncLoad(Function) {
    ENTER_OUTSIDE_CAPTURES(cuFuncLoad);
    const std::lock_guard lock(fake_mutex);
    ++fake.preloaded;
    return error_none;
}
#endif
EXPORT Result cuLaunchKernelEx(const LaunchConfig* config, Function function, void** parameters, void**) {
    ENTER(cuLaunchKernelEx);
    if (config->stream == nullptr && current.empty()) return error_invalid_context;
    return launch(*config, function, parameters);
}
