// SPDX-License-Identifier: Apache-2.0
#include "tvm_ffi_kernel.h"

#include "cpu_workspace.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <utility>

#include <dlfcn.h>

namespace normjit::tvm {

namespace {

constexpr int32_t no_number = -1;

template <class Function>
void find(Function*& function, const char* name) {
    // Python loads the libraries of an extension without making their symbols global, so they are found only through
    // the name of the library.
    static void* const library = dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_NOLOAD);
    void* found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr && library != nullptr) found = dlsym(library, name);
    if (found == nullptr) throw Failure(NORMJIT_UNAVAILABLE, std::string("tvm-ffi: it has no function ") + name);
    function = reinterpret_cast<Function*>(found);
}

Api find_api() {
    Api all{};
    find(all.function_create, "TVMFFIFunctionCreate");
    find(all.error_set, "TVMFFIErrorSetRaisedFromCStr");
    find(all.stream, "TVMFFIEnvGetStream");
    find(all.allocator, "TVMFFIEnvGetDLPackManagedTensorAllocator");
    find(all.tensor_alloc, "TVMFFIEnvTensorAlloc");
    find(all.release, "TVMFFIObjectDecRef");
    return all;
}

std::string name_of(Device device) { return device.type == device_cuda ? "cuda:" + std::to_string(device.id) : "cpu"; }

[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
    throw Failure(NORMJIT_INVALID_ARGUMENT, name + ": " + reason);
}

normjit_engine* engine_of(Device device) {
    static std::mutex lock;
    // Never destroyed, because other threads may outlive main().
    static auto& engines = *new std::map<std::string, normjit_engine*>();
    const std::lock_guard holding(lock);
    normjit_engine*& engine = engines[name_of(device)];
    if (engine == nullptr) {
        const std::string name = name_of(device);
        normjit_engine_options options{};
        options.size = sizeof options;
        options.device = name.c_str();
        check(normjit_engine_create(&options, &engine));
    }
    return engine;
}

void* stream_of(Device device) { return device.type == device_cuda ? api().stream(device.type, device.id) : nullptr; }

const Tensor* tensor_of(const Any& given) {
    if (given.kind == Kind::tensor_pointer) return static_cast<const Tensor*>(given.pointer);
    if (given.kind != Kind::tensor) return nullptr;
    return reinterpret_cast<const Tensor*>(static_cast<const char*>(given.pointer) + sizeof(Object));
}

int64_t bytes_of(const std::string& name, const Tensor& tensor) {
    int64_t elements = 1;
    for (int i = tensor.dimensions - 1; i >= 0; --i) {
        if (tensor.strides != nullptr && tensor.shape[i] > 1 && tensor.strides[i] != elements)
            refuse(name, "its elements are not contiguous");
        elements *= tensor.shape[i];
    }
    return elements * (tensor.dtype.bits * tensor.dtype.lanes / 8);
}

/// Returns the index of a tensor in normjit_arguments.
int32_t number_of(const normjit_spec& spec, const std::string& name) {
    if (name == "workspace") return no_number;
    int32_t number = 0;
    check(normjit_spec_tensor(&spec, name.c_str(), &number));
    return number;
}

/// Takes key=~4096 out of a spec's text and returns the number, or 0 if the key is missing.
int64_t take_expected(std::string& text, std::string_view key) {
    const size_t at = text.rfind(key);
    if (at == text.npos) return 0;
    const size_t end = std::min(text.find(' ', at + 1), text.size());
    int64_t number = 0;
    const auto [last, error] = std::from_chars(&text[at + key.size()], &text[end], number);
    if (error != std::errc() || last != &text[end] || number < 0)
        refuse("spec", text.substr(at + 1, end - at - 1) + ": must be a whole number after ~");
    text.erase(at, end - at);
    return number;
}

/// A spec that may leave rows and slices open, and how many are expected; 0 if that is unknown.
struct OpenSpec {
    explicit OpenSpec(std::string given)
        : rows(take_expected(given, " rows=~")), slices(take_expected(given, " slices=~")), text(std::move(given)) {
        spec.size = sizeof spec;
        check(normjit_spec_parse(text.c_str(), &spec));
    }

    int64_t rows, slices;
    std::string text;  ///< the spec points into this text
    normjit_spec spec{};
};

}  // namespace

const Api& api() {
    static const Api found = find_api();
    return found;
}

std::unique_ptr<normjit_kernel, decltype(&normjit_kernel_destroy)> prepare(const std::string& text, Device device) {
    const OpenSpec open(text);
    normjit_prepare_options options{};
    options.size = sizeof options;
    options.stream = stream_of(device);
    options.expected_rows = open.rows;
    options.expected_slices = open.slices;
    normjit_kernel* kernel = nullptr;
    check(normjit_prepare(engine_of(device), &open.spec, &options, &kernel));
    return {kernel, normjit_kernel_destroy};
}

Kernel::Kernel(const std::string& text, Device device, std::vector<std::string> names)
    : device_(device), kernel_(prepare(text, device)) {
    const OpenSpec open(text);
    for (std::string& name : names) {
        const int32_t number = number_of(open.spec, name);
        if (std::ranges::any_of(places_, [&](const Place& place) { return place.number == number; }))
            refuse(name, "is named twice");
        places_.push_back({std::move(name), number});
    }
}

void Kernel::bind(const Place& place, const Any& given, normjit_arguments& arguments) const {
    const Tensor* tensor = tensor_of(given);
    if (tensor == nullptr) {
        refuse(place.name,
               "is of tvm-ffi's type " + std::to_string(static_cast<int32_t>(given.kind)) + "; must be a tensor");
    }
    if (tensor->device.type == device_.type && device_.type == device_cuda && tensor->device.id != device_.id)
        refuse(place.name, "is on " + name_of(tensor->device) + "; the kernel is for " + name_of(device_));
    if (place.number != no_number) {
        const auto number = static_cast<normjit_tensor>(place.number);
        check(normjit_set_dlpack(kernel_.get(), &arguments, number, tensor));
        return;
    }
    if (tensor->device.type != device_.type)
        refuse(place.name, "is on a device of type " + std::to_string(tensor->device.type) + "; the kernel is for " +
                               name_of(device_));
    arguments.workspace = static_cast<char*>(tensor->data) + tensor->byte_offset;
    arguments.workspace_bytes = bytes_of(place.name, *tensor);
}

void Kernel::launch_with_workspace(normjit_arguments& arguments) const {
    int64_t bytes = 0;
    check(normjit_kernel_workspace_bytes(kernel_.get(), arguments.rows, arguments.slices, nullptr, &bytes));
    arguments.workspace_bytes = bytes;
    if (device_.type == device_cpu || bytes == 0) {
        arguments.workspace = python::cpu_workspace(bytes);
        if (arguments.workspace == nullptr) arguments.workspace_bytes = 0;  // the launch says how much it needs
        return check(normjit_launch(kernel_.get(), &arguments));
    }
    if (api().allocator() == nullptr) {
        refuse("workspace", "tvm-ffi has no allocator in this process: name it among the tensors, and pass " +
                                std::to_string(bytes) + " bytes");
    }
    Tensor wanted{nullptr, device_, 1, type_u8, &bytes, nullptr, 0};
    void* made = nullptr;
    if (api().tensor_alloc(&wanted, &made) != 0) throw Raised();
    const std::unique_ptr<void, int (*)(void*)> holding(made, api().release);
    const Any memory{Kind::tensor, 0, {.pointer = made}};
    bind({"workspace", no_number}, memory, arguments);
    check(normjit_launch(kernel_.get(), &arguments));
}

void Kernel::launch(std::span<const Any> tensors) const {
    if (tensors.size() != places_.size()) {
        throw Failure(
            NORMJIT_INVALID_ARGUMENT,
            std::to_string(tensors.size()) + " tensors were passed; the kernel has " + std::to_string(places_.size()));
    }
    normjit_arguments arguments{};
    arguments.size = sizeof arguments;
    bool has_workspace = false;
    for (size_t i = 0; i < tensors.size(); ++i) {
        bind(places_[i], tensors[i], arguments);
        has_workspace = has_workspace || places_[i].number == no_number;
    }
    arguments.stream = stream_of(device_);
    if (!has_workspace) return launch_with_workspace(arguments);
    check(normjit_launch(kernel_.get(), &arguments));
}

}  // namespace normjit::tvm
