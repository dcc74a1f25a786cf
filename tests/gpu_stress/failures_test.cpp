// SPDX-License-Identifier: Apache-2.0
// A GPU that fails for a while: contexts are destroyed while an engine uses them, no device memory is left, launches
// are refused. The next launch must have the bits of an earlier one.
#include "device/cuda/graph.h"
#include "gpu_tensors.h"

#include <string>
#include <vector>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr const char* text = "layernorm cols=4096 x=bf16 gamma=f32";
constexpr int64_t rows = 301;

template <class Function>
Function driver_function(const char* name) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<Function>(dlsym(library, name));
}

/// The tensors of a kernel, and the results of a launch.
struct Problem {
    Problem(const Engine& engine, const Kernel& on) : kernel(on), tensors(engine, kernel, rows, 100) {
        launch(kernel, tensors.arguments(nullptr));
        expected = tensors.outputs();
    }
    void check() const {
        tensors.spoil();
        launch(kernel, tensors.arguments(nullptr));
        CHECK(tensors.outputs() == expected);
    }
    const Kernel kernel;
    const GpuTensors tensors;
    GpuTensors::Bytes expected;
};

/// Takes all of a GPU's memory, except for pieces below 1 MiB.
class AllMemory {
  public:
    explicit AllMemory(const std::shared_ptr<const cuda::Gpu>& gpu) {
        for (int64_t bytes = int64_t{64} << 30; bytes >= 1 << 20;) {
            auto piece = cuda::DeviceMemory::allocate(gpu, bytes);
            if (piece.ok()) {
                pieces_.push_back(*std::move(piece));
            } else {
                bytes /= 2;
            }
        }
    }
    size_t pieces() const { return pieces_.size(); }

  private:
    std::vector<cuda::DeviceMemory> pieces_;
};

}  // namespace

TEST_CASE("kernels outlive a caller's context that is destroyed under the engine") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const auto gpu = gpu_of(*engine);
    const auto create = driver_function<cuda::Result (*)(cuda::Context*, unsigned, int)>("cuCtxCreate_v2");
    const auto destroy = driver_function<cuda::Result (*)(cuda::Context)>("cuCtxDestroy_v2");
    const Problem problem(*engine, gpu_kernel(*engine, text));
    for (int i = 0; i < 20; ++i) {
        cuda::Context own = nullptr, popped = nullptr;
        REQUIRE(create(&own, 0, gpu->handle()) == cuda::error_none);
        const auto inside = engine->prepare(*parse_spec(fmt::format("rmsnorm cols={} x=bf16", 512 + i)));
        REQUIRE_MESSAGE(inside.ok(), inside.status().message());
        {
            const Problem there(*engine, *inside);
            there.check();
        }
        if (i % 2 == 0) CHECK(gpu->driver().cuCtxPopCurrent(&popped) == cuda::error_none);
        CHECK(destroy(own) == cuda::error_none);
        const Problem after(*engine, *inside);  // its memory is in the primary context, or there is none
        after.check();
        problem.check();
    }
}

TEST_CASE("without device memory, a prepare works or says so, and launches go on") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const Problem problem(*engine, gpu_kernel(*engine, text));
    int failures = 0;
    {
        const AllMemory all(gpu_of(*engine));
        CHECK(all.pieces() > 0);
        for (int i = 0; i < 10; ++i) {
            const auto kernel = engine->prepare(*parse_spec(fmt::format("layernorm cols={} x=bf16", 640 + 8 * i)));
            failures += !kernel.ok();
            if (!kernel.ok()) CHECK(kernel.status().message().find("cuda") != std::string::npos);
            problem.check();
        }
    }
    MESSAGE(failures, " of 10 prepares found no memory");
    for (int i = 0; i < 10; ++i) {
        const auto kernel =
            engine->prepare(*parse_spec(fmt::format("layernorm cols={} x=bf16 gamma=f32", 640 + 8 * i)));
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        Problem(*engine, *kernel).check();
    }
    problem.check();
}

TEST_CASE("an allocator without memory is an error, and the next launch works") {
    const auto engine = gpu_engine();
    if (!engine) return;
    EngineOptions options{.device = engine->device(), .parallel_for = {}};
    options.allocator = {[](void*, int64_t, void*) -> void* { return nullptr; }, [](void*, void*, int64_t, void*) {},
                         nullptr};
    const Engine poor = *Engine::create(options);
    const Problem problem(poor, gpu_kernel(poor, text));
    Arguments arguments = problem.tensors.arguments(nullptr);
    arguments.workspace = nullptr;
    const Status status = problem.kernel.launch(arguments);
    CHECK(status.code() == Code::failed);
    CHECK(status.message().find("allocator") != std::string::npos);
    problem.check();
}

TEST_CASE("launches that fail or are refused leave the GPU as it was") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const auto gpu = gpu_of(*engine);
    const Problem problem(*engine, gpu_kernel(*engine, text));
    const auto stream = *cuda::WorkStream::create(gpu);
    for (int i = 0; i < 20; ++i) {
        Arguments wrong = problem.tensors.arguments(nullptr);
        wrong[Tensor::x].data = nullptr;
        CHECK(problem.kernel.launch(wrong).code() == Code::invalid_argument);
        // A call that graphs do not allow ends the capture. Later launches into it then fail.
        const auto broken = stream->capture([&] {
            cuda::DevicePointer memory = 0;
            gpu->driver().cuMemAlloc(&memory, 1 << 20);
            if (memory != 0) gpu->driver().cuMemFree(memory);
            return problem.kernel.launch(problem.tensors.arguments(stream->handle()));
        });
        CHECK(!broken.ok());
        problem.check();
        problem.tensors.spoil();
        launch(problem.kernel, problem.tensors.arguments(stream->handle()));
        CHECK(stream->wait().ok());
        CHECK(problem.tensors.outputs() == problem.expected);
    }
}
