// SPDX-License-Identifier: Apache-2.0
// The functions that tvm-ffi finds in this library, under names that begin with __tvm_ffi_. normjit/tvm_ffi.py
// describes them.
#include "tvm_ffi_kernel.h"

#include <cstring>
#include <exception>
#include <string_view>

#define NORMJIT_EXPORT extern "C" __attribute__((visibility("default")))

namespace normjit::tvm {

namespace {

[[noreturn]] void refuse(const char* name, const char* what) {
    throw Failure(NORMJIT_INVALID_ARGUMENT, std::string(name) + ": must be " + what);
}

std::string text_of(const Any& given, const char* name) {
    std::string_view found;
    if (given.kind == Kind::raw_text) {
        found = static_cast<const char*>(given.pointer);
    } else if (given.kind == Kind::small_text) {
        found = {given.small, given.small_size};
    } else if (given.kind == Kind::text) {
        Text text;
        std::memcpy(&text, static_cast<const char*>(given.pointer) + sizeof(Object), sizeof text);
        found = {text.data, text.size};
    } else {
        refuse(name, "a text");
    }
    if (found.find('\0') != found.npos) refuse(name, "a text without NUL");
    return std::string(found);
}

int64_t integer_of(const Any& given, const char* name) {
    if (given.kind != Kind::integer) refuse(name, "an integer");
    return given.integer;
}

Device device_of(const Any& given) {
    const char* const allowed = "a CPU or CUDA device";
    if (given.kind != Kind::device) refuse("device", allowed);
    if (given.device.type != device_cpu && given.device.type != device_cuda) refuse("device", allowed);
    return given.device;
}

void check_count(std::span<const Any> given, size_t least, size_t most, const char* wanted) {
    if (given.size() >= least && given.size() <= most) return;
    throw Failure(NORMJIT_INVALID_ARGUMENT,
                  std::to_string(given.size()) + " arguments were passed; must be: " + wanted);
}

/// Runs the body of a function; an exception becomes this thread's error.
template <class Body>
int answer(const Any* arguments, int32_t count, const Body& body) noexcept {
    try {
        body(std::span(arguments, static_cast<size_t>(count)));
        return 0;
    } catch (const Raised&) {
    } catch (const Failure& failure) {
        api().error_set(failure.status == NORMJIT_INVALID_ARGUMENT ? "ValueError" : "RuntimeError", failure.what());
    } catch (const std::exception& error) {
        api().error_set("RuntimeError", error.what());
    }
    return -1;
}

int launch(void* self, const Any* arguments, int32_t count, Any*) {
    return answer(arguments, count, [&](std::span<const Any> given) { static_cast<Kernel*>(self)->launch(given); });
}

Any function_of(std::unique_ptr<Kernel> kernel) {
    void* function = nullptr;
    const auto destroy = [](void* self) { delete static_cast<Kernel*>(self); };
    if (api().function_create(kernel.get(), launch, destroy, &function) != 0) throw Raised();
    kernel.release();  // the function now owns it
    return {Kind::function, 0, {.pointer = function}};
}

}  // namespace

}  // namespace normjit::tvm

NORMJIT_EXPORT int __tvm_ffi_prepare(void*, const normjit::tvm::Any* arguments, int32_t count,
                                     normjit::tvm::Any* result) {
    using namespace normjit::tvm;
    return answer(arguments, count, [&](std::span<const Any> given) {
        check_count(given, 2, SIZE_MAX, "spec, device, and the names of the tensors");
        std::vector<std::string> names;
        for (const Any& name : given.subspan(2)) names.push_back(text_of(name, "tensors"));
        *result =
            function_of(std::make_unique<Kernel>(text_of(given[0], "spec"), device_of(given[1]), std::move(names)));
    });
}

NORMJIT_EXPORT int __tvm_ffi_workspace_bytes(void*, const normjit::tvm::Any* arguments, int32_t count,
                                             normjit::tvm::Any* result) {
    using namespace normjit::tvm;
    return answer(arguments, count, [&](std::span<const Any> given) {
        check_count(given, 3, 4, "spec, device, rows and slices");
        const auto kernel = prepare(text_of(given[0], "spec"), device_of(given[1]));
        const int64_t slices = given.size() == 4 ? integer_of(given[3], "slices") : 0;
        int64_t bytes = 0;
        check(normjit_kernel_workspace_bytes(kernel.get(), integer_of(given[2], "rows"), slices, nullptr, &bytes));
        *result = {Kind::integer, 0, {.integer = bytes}};
    });
}
