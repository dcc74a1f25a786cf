// SPDX-License-Identifier: Apache-2.0
// Calls the library for tvm-ffi as tvm-ffi does, with imitations of tvm-ffi, of a driver of two GPUs and of NVRTC. It
// tests the stream, the workspace and the device of a launch. runtime/python/tests/tvm_ffi_test.py uses the real
// tvm-ffi, on a CPU.
#include "fake_cuda.h"
#include "fake_gpu.h"
#include "tvm_ffi.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit::test;
using namespace normjit::tvm;

extern "C" {
Call __tvm_ffi_prepare, __tvm_ffi_workspace_bytes;
}

namespace {

/// Runs before anything asks for these libraries.
[[maybe_unused]] const bool hooked =
    setenv("NORMJIT_NVRTC_PATH", NORMJIT_FAKE_NVRTC, 1) == 0 && setenv("NORMJIT_CACHE_DIR", "off", 1) == 0;

/// What tvm-ffi keeps for each thread.
struct Ffi {
    std::string kind, message;
    Call* call = nullptr;
    void* self = nullptr;
    void (*deleter)(void*) = nullptr;
    bool has_allocator = true, allocator_fails = false;
    Device streams_of{};
    std::vector<int64_t> allocated;
    Device allocated_on{};
    int released = 0;
} ffi;

normjit::cuda::Stream stream() {
    static normjit::cuda::Stream made = [] {
        normjit::cuda::Stream created = nullptr;
        REQUIRE((*normjit::cuda::driver())->cuStreamCreate(&created, 0) == normjit::cuda::error_none);
        return created;
    }();
    return made;
}

struct TensorObject {
    Object head;
    Tensor tensor;
} memory;

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int TVMFFIFunctionCreate(void* self, Call* call, void (*deleter)(void*), void** function) {
    ffi.self = self, ffi.call = call, ffi.deleter = deleter;
    *function = &ffi;
    return 0;
}
EXPORTED void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
    ffi.kind = kind, ffi.message = message;
}
EXPORTED void* TVMFFIEnvGetStream(int32_t type, int32_t id) {
    ffi.streams_of = {type, id};
    return stream();
}
EXPORTED void* TVMFFIEnvGetDLPackManagedTensorAllocator() { return ffi.has_allocator ? &ffi : nullptr; }
EXPORTED int TVMFFIEnvTensorAlloc(Tensor* wanted, void** tensor) {
    if (ffi.allocator_fails) {
        ffi.message = "the allocator's own error";
        return -1;
    }
    REQUIRE((wanted->dimensions == 1 && wanted->dtype.bits == 8 && wanted->dtype.lanes == 1));
    ffi.allocated.push_back(wanted->shape[0]);
    ffi.allocated_on = wanted->device;
    memory = {{1, Kind::tensor, 0, nullptr}, *wanted};
    memory.tensor.data = reinterpret_cast<void*>(uintptr_t{0x40000000});
    *tensor = &memory;
    return 0;
}
EXPORTED int TVMFFIObjectDecRef(void* object) {
    CHECK(object == &memory);
    ffi.released++;
    return 0;
}

namespace {

const char* const spec = "layernorm cols=1024 x=bf16 gamma=f32 stats=recompute out=dx,dgamma";
constexpr Device gpu{device_cuda, 1};

Any text(const char* of) {
    Any any{Kind::raw_text, 0, {}};
    any.pointer = const_cast<char*>(of);
    return any;
}
Any on(Device device) { return {Kind::device, 0, {.device = device}}; }
Any tensor(Tensor& of) { return {Kind::tensor_pointer, 0, {.pointer = &of}}; }

/// The function of a kernel, and tensors of 64 rows for it on a GPU.
struct Problem {
    int64_t matrix_shape[2] = {64, 1024}, column_shape[1] = {1024};
    std::vector<Tensor> tensors;
    Ffi function;

    explicit Problem(std::vector<const char*> more = {}) {
        fake_driver();
        ffi = Ffi();
        std::vector<Any> arguments = {text(spec), on(gpu)};
        for (const char* name : {"x", "dy", "gamma", "dx", "dgamma"}) {
            const bool is_column = std::string(name).ends_with("gamma");
            void* const data = reinterpret_cast<void*>(uintptr_t{0x10000000} + tensors.size() * 0x1000000);
            tensors.push_back({data, gpu, is_column ? 1 : 2, is_column ? DataType{2, 32, 1} : DataType{4, 16, 1},
                               is_column ? column_shape : matrix_shape, nullptr, 0});
            arguments.push_back(text(name));
        }
        for (const char* name : more) arguments.push_back(text(name));
        Any made{};
        REQUIRE_MESSAGE(__tvm_ffi_prepare(nullptr, arguments.data(), int32_t(arguments.size()), &made) == 0,
                        ffi.message);
        CHECK((made.kind == Kind::function && made.pointer == &ffi));
        CHECK((ffi.streams_of.type == gpu.type && ffi.streams_of.id == gpu.id));
        function = ffi;
        normjit_fake_cuda()->launches.clear();
    }
    ~Problem() { function.deleter(function.self); }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;

    /// Returns the error, or "".
    std::string launch() {
        std::vector<Any> arguments;
        for (Tensor& each : tensors) arguments.push_back(tensor(each));
        Any none{};
        ffi.message = "";
        const int result = function.call(function.self, arguments.data(), int32_t(arguments.size()), &none);
        CHECK((result == 0) == ffi.message.empty());
        CHECK(none.kind == Kind::none);
        return ffi.message;
    }
};

int64_t workspace_bytes(int64_t rows) {
    const Any arguments[] = {text(spec), on(gpu), {Kind::integer, 0, {.integer = rows}}};
    Any made{};
    REQUIRE_MESSAGE(__tvm_ffi_workspace_bytes(nullptr, arguments, 3, &made) == 0, ffi.message);
    REQUIRE(made.kind == Kind::integer);
    return made.integer;
}

}  // namespace

TEST_CASE("a launch goes to tvm-ffi's stream, with memory of tvm-ffi's allocator") {
    Problem problem;
    REQUIRE(problem.launch() == "");
    const auto& launches = normjit_fake_cuda()->launches;
    REQUIRE(!launches.empty());
    for (const FakeLaunch& launch : launches) CHECK(launch.stream == stream());
    REQUIRE(ffi.allocated.size() == 1);
    CHECK((ffi.allocated_on.type == gpu.type && ffi.allocated_on.id == gpu.id));
    CHECK(ffi.allocated[0] == workspace_bytes(64));
    CHECK(ffi.released == 1);
}

TEST_CASE("a kernel is not prepared on a stream that is capturing") {
    fake_driver();
    ffi = Ffi();
    normjit_fake_capture(stream(), true);
    const Any arguments[] = {text("rmsnorm cols=72"), on(gpu)};
    Any made{};
    CHECK(__tvm_ffi_prepare(nullptr, arguments, 2, &made) == -1);
    CHECK(ffi.message == "cuda: a graph is being captured; compile and load before, launch inside");
    normjit_fake_capture(stream(), false);
    REQUIRE_MESSAGE(__tvm_ffi_prepare(nullptr, arguments, 2, &made) == 0, ffi.message);
    ffi.deleter(ffi.self);
}

TEST_CASE("without an allocator the workspace is passed") {
    Problem problem;
    ffi.has_allocator = false;
    CHECK(problem.launch() ==
          "workspace: tvm-ffi has no allocator in this process: name it among the tensors, and pass " +
              std::to_string(workspace_bytes(64)) + " bytes");
    ffi.has_allocator = true, ffi.allocator_fails = true;
    CHECK(problem.launch() == "the allocator's own error");

    Problem other({"workspace"});
    int64_t bytes = workspace_bytes(64);
    other.tensors.push_back({reinterpret_cast<void*>(uintptr_t{0x50000000}), gpu, 1, type_u8, &bytes, nullptr, 0});
    CHECK(other.launch() == "");
    CHECK(ffi.allocated.empty());
    other.tensors.back().device.type = device_cpu;
    CHECK(other.launch() == "workspace: is on a device of type 1; the kernel is for cuda:1");
    other.tensors.back().device = {device_cuda, 0};
    CHECK(other.launch() == "workspace: is on cuda:0; the kernel is for cuda:1");
}

TEST_CASE("tensors of another device are refused") {
    Problem problem;
    problem.tensors[1].device.id = 0;
    CHECK(problem.launch() == "dy: is on cuda:0; the kernel is for cuda:1");
    problem.tensors[1].device = {device_cpu, 0};
    CHECK(problem.launch() == "dlpack: dy: is on a device of type 1; the kernel runs on a GPU");
    CHECK(ffi.kind == "ValueError");
    CHECK(normjit_fake_cuda()->launches.empty());
    CHECK(ffi.allocated.empty());
}

TEST_CASE("a driver that fails is an error of another kind") {
    Problem problem;
    normjit_fake_cuda()->failing = "cuLaunchKernelEx";
    CHECK(problem.launch() != "");
    CHECK(ffi.kind == "RuntimeError");
    CHECK(ffi.released == 1);
}
