// SPDX-License-Identifier: Apache-2.0
// Launches on a GPU in unusual conditions: streams, threads, contexts, captured graphs, more than 2^31 elements.
// tests/property, with NORMJIT_TEST_DEVICE=cuda:0, checks that the numbers are right.
#include "device/cuda/graph.h"
#include "gpu_tensors.h"

#include <atomic>
#include <thread>

#include <dlfcn.h>
#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Narrow rows, a block for each row, and a cluster for each row (if there are clusters).
constexpr const char* specs[] = {
    "layernorm cols=256 x=bf16 gamma=f32",
    "rmsnorm cols=4096 x=bf16",
    "layernorm cols=1000 x=bf16 gamma=f32 stats=recompute",
    "layernorm cols=32768 x=bf16 gamma=bf16",
};

constexpr int64_t gpu_rows = 3001;

std::unique_ptr<cuda::WorkStream> new_stream(const Engine& engine) { return *cuda::WorkStream::create(gpu_of(engine)); }

}  // namespace

TEST_CASE("the default stream and any other give the same bits") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const auto stream = new_stream(*engine);
    for (const char* spec : specs) {
        CAPTURE(spec);
        const Kernel kernel = gpu_kernel(*engine, spec);
        const GpuTensors tensors(*engine, kernel, gpu_rows, 100);
        launch(kernel, tensors.arguments(nullptr));
        const auto expected = tensors.outputs();  // this waits for the launch
        tensors.spoil();
        launch(kernel, tensors.arguments(stream->handle()));
        CHECK(stream->wait().ok());
        CHECK(tensors.outputs() == expected);
    }
}

TEST_CASE("launches on two streams at once do not disturb each other") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const auto first = new_stream(*engine), second = new_stream(*engine);
    for (const char* spec : specs) {
        CAPTURE(spec);
        const Kernel kernel = gpu_kernel(*engine, spec);
        const GpuTensors one(*engine, kernel, gpu_rows, 100, 1), two(*engine, kernel, gpu_rows, 100, 2);
        launch(kernel, one.arguments(first->handle()));
        launch(kernel, two.arguments(first->handle()));
        CHECK(first->wait().ok());
        const auto expected_one = one.outputs(), expected_two = two.outputs();
        CHECK(expected_one != expected_two);
        one.spoil();
        two.spoil();
        for (int i = 0; i < 20; ++i) {
            launch(kernel, one.arguments(first->handle()));
            launch(kernel, two.arguments(second->handle()));
        }
        CHECK(first->wait().ok());
        CHECK(second->wait().ok());
        CHECK(one.outputs() == expected_one);
        CHECK(two.outputs() == expected_two);
    }
}

TEST_CASE("threads that have not used the GPU before launch at once") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const Kernel kernel = gpu_kernel(*engine, specs[0]);
    constexpr int threads = 6;
    std::vector<GpuTensors::Bytes> outputs(threads);
    std::atomic<int> failures = 0;
    std::vector<std::thread> workers;
    std::vector<GpuTensors> tensors;
    for (int i = 0; i < threads; ++i) tensors.emplace_back(*engine, kernel, gpu_rows, 100, 7);
    for (const GpuTensors& mine : tensors) {
        workers.emplace_back([&] {
            const auto stream = new_stream(*engine);
            for (int i = 0; i < 50; ++i) failures += !kernel.launch(mine.arguments(stream->handle())).ok();
            failures += !stream->wait().ok();
        });
    }
    for (std::thread& worker : workers) worker.join();
    CHECK(failures == 0);
    const auto expected = tensors[0].outputs();
    for (const GpuTensors& each : tensors) CHECK(each.outputs() == expected);
}

TEST_CASE("a captured graph gives the same bits a thousand times") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const auto stream = new_stream(*engine);
    for (const char* spec : specs) {
        CAPTURE(spec);
        const Kernel kernel = gpu_kernel(*engine, spec);  // its first launch is captured
        const GpuTensors tensors(*engine, kernel, 301, 100);
        const auto graph = stream->capture([&] { return kernel.launch(tensors.arguments(stream->handle())); });
        REQUIRE_MESSAGE(graph.ok(), graph.status().message());
        REQUIRE(stream->launch(*graph).ok());
        CHECK(stream->wait().ok());
        const auto expected = tensors.outputs();
        int different = 0;
        for (int i = 0; i < 1000; ++i) {
            if (i % 10 == 0) tensors.spoil();
            CHECK(stream->launch(*graph).ok());
            if (i % 10 != 0) continue;
            CHECK(stream->wait().ok());
            different += tensors.outputs() != expected;
        }
        CHECK(stream->wait().ok());
        CHECK(different == 0);
        CHECK(tensors.outputs() == expected);
        tensors.spoil();
        launch(kernel, tensors.arguments(nullptr));
        CHECK(tensors.outputs() == expected);
    }
}

TEST_CASE("compile and load are refused while a graph is captured, and leave the capture alone") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const auto stream = new_stream(*engine);
    const Spec spec = *parse_spec(specs[0]);
    const Kernel kernel = gpu_kernel(*engine, specs[0]);
    const GpuTensors tensors(*engine, kernel, 100, 100);
    const auto graph = stream->capture([&] {
        const auto refused = engine->compile(spec, stream->handle());
        CHECK(refused.status().code() == Code::capturing);
        CHECK(refused.status().message() == "cuda: a graph is being captured; compile and load before, launch inside");
        CHECK(engine->load(kernel.artifact(), stream->handle()).status().code() == Code::capturing);
        return kernel.launch(tensors.arguments(stream->handle()));
    });
    CHECK_MESSAGE(graph.ok(), graph.status().message());
    CHECK(engine->load(kernel.artifact(), stream->handle()).ok());
    CHECK(engine->compile(spec, stream->handle()).ok());
}

TEST_CASE("a context of the caller's own is used and left current") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const auto gpu = gpu_of(*engine);
    const cuda::Driver& driver = gpu->driver();
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto create =
        reinterpret_cast<cuda::Result (*)(cuda::Context*, unsigned, int)>(dlsym(library, "cuCtxCreate_v2"));
    const auto destroy = reinterpret_cast<cuda::Result (*)(cuda::Context)>(dlsym(library, "cuCtxDestroy_v2"));
    const Kernel before = gpu_kernel(*engine, specs[1]);
    const GpuTensors there(*engine, before, gpu_rows, 100);
    launch(before, there.arguments(nullptr));
    const auto expected = there.outputs();

    cuda::Context own = nullptr, seen = nullptr;
    REQUIRE(create(&own, 0, gpu->handle()) == cuda::error_none);
    {
        const Kernel inside = gpu_kernel(*engine, specs[1]);
        const GpuTensors tensors(*engine, inside, gpu_rows, 100);  // this is memory of the current context
        const auto stream = new_stream(*engine);
        for (const Kernel& kernel : {before, inside}) {
            tensors.spoil();
            launch(kernel, tensors.arguments(stream->handle()));
            CHECK(stream->wait().ok());
            CHECK(tensors.outputs() == expected);
            tensors.spoil();
            launch(kernel, tensors.arguments(nullptr));
            CHECK(tensors.outputs() == expected);
        }
        CHECK(driver.cuCtxGetCurrent(&seen) == cuda::error_none);
        CHECK(seen == own);
    }
    CHECK(driver.cuCtxPopCurrent(&seen) == cuda::error_none);
    CHECK(destroy(own) == cuda::error_none);
    launch(before, there.arguments(nullptr));
    CHECK(there.outputs() == expected);
}

TEST_CASE("without rows, column sums are zeros") {
    const auto engine = gpu_engine();
    if (!engine) return;
    for (const char* spec : specs) {
        const Kernel kernel = gpu_kernel(*engine, spec);
        const GpuTensors tensors(*engine, kernel, 0, 0);
        launch(kernel, tensors.arguments(nullptr));
        for (std::byte byte : tensors.outputs()) REQUIRE(byte == std::byte{0});
    }
}

TEST_CASE("more than 2^31 elements") {
    const auto engine = gpu_engine();
    if (!engine) return;
    constexpr int64_t many = 65536, cols = 40000, distinct = 64;  // 2.6e9 elements, 5.2 GB per matrix
    const auto gpu = gpu_of(*engine);
    const cuda::ContextScope scope(*gpu);
    size_t free_bytes = 0, total = 0;
    REQUIRE(gpu->driver().cuMemGetInfo(&free_bytes, &total) == cuda::error_none);
    if (free_bytes < size_t{18} << 30) {
        MESSAGE("skipped: less than 18 GiB of GPU memory are free");
        return;
    }
    const Kernel kernel = gpu_kernel(*engine, "layernorm cols=40000 x=bf16 gamma=f32");
    const GpuTensors tensors(*engine, kernel, many, distinct);
    launch(kernel, tensors.arguments(nullptr));
    // Equal rows have equal gradients, wherever they are.
    constexpr int64_t tile = distinct * cols * 2;
    const auto expected = tensors.read(Tensor::dx, 0, tile);
    for (int64_t at = 0; at < many / distinct; at += 31) CHECK(tensors.read(Tensor::dx, at * tile, tile) == expected);
    CHECK(tensors.read(Tensor::dx, (many / distinct - 1) * tile, tile) == expected);
    // 1024 times as many rows must give 1024 times the sums.
    const GpuTensors few(*engine, kernel, distinct, distinct);
    launch(kernel, few.arguments(nullptr));
    for (Tensor tensor : {Tensor::dgamma, Tensor::dbeta}) {
        const auto all = tensors.read(tensor), once = few.read(tensor);
        const auto* a = reinterpret_cast<const float*>(all.data());
        const auto* b = reinterpret_cast<const float*>(once.data());
        double worst = 0, size = 0;
        for (int64_t j = 0; j < cols; ++j) {
            worst = std::max(worst, std::abs(double{a[j]} - 1024.0 * double{b[j]}));
            size = std::max(size, std::abs(double{a[j]}));
        }
        CHECK(worst < 1e-5 * size);
    }
}

TEST_CASE("two GPUs in one process give the same bits, at once and in turn") {
    const auto one = gpu_engine();
    if (!one) return;
    const auto two = Engine::create({.device = "cuda:1", .parallel_for = {}});
    if (!two.ok() || two->device() == one->device() || two->target() != one->target()) {
        MESSAGE("skipped: no two GPUs of one kind: ", two.status().message());
        return;
    }
    for (const char* spec : specs) {
        CAPTURE(spec);
        const Kernel first = gpu_kernel(*one, spec), second = gpu_kernel(*two, spec);
        const GpuTensors here(*one, first, gpu_rows, 100), there(*two, second, gpu_rows, 100),
            apart(*two, second, gpu_rows, 100);
        const auto stream = new_stream(*two);
        for (int i = 0; i < 3; ++i) {
            launch(first, here.arguments(nullptr));
            launch(second, there.arguments(nullptr));
            launch(second, apart.arguments(stream->handle()));
        }
        CHECK(stream->wait().ok());
        const auto expected = here.outputs();
        CHECK(there.outputs() == expected);
        CHECK(apart.outputs() == expected);

        for (const GpuTensors* tensors : {&here, &there, &apart}) tensors->spoil();
        std::atomic<int> failures = 0;
        const auto launch_many = [&](const Engine& engine, const Kernel& kernel, const GpuTensors& tensors) {
            const auto own = new_stream(engine);
            for (int i = 0; i < 50; ++i) failures += !kernel.launch(tensors.arguments(own->handle())).ok();
            failures += !own->wait().ok();
        };
        std::thread other([&] { launch_many(*two, second, there); });
        launch_many(*one, first, here);
        other.join();
        {
            // The context of one GPU is current while the kernel of the other is launched.
            const auto gpu = gpu_of(*one);
            const cuda::ContextScope scope(*gpu);
            launch(second, apart.arguments(stream->handle()));
        }
        CHECK(stream->wait().ok());
        CHECK(failures == 0);
        for (const GpuTensors* tensors : {&here, &there, &apart}) CHECK(tensors->outputs() == expected);
    }
}
