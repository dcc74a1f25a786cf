// SPDX-License-Identifier: Apache-2.0
// Threads with separate streams prepare and launch on one GPU and on two, and capture graphs while others prepare.
// Every launch must have the bits of a single launch. NORMJIT_STRESS_SECONDS says how long each test runs.
#include "threads.h"

#include "device/cuda/graph.h"
#include "gpu_tensors.h"
#include "random_spec.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr int threads = 16;
constexpr int64_t rows_each = 701;

/// Narrow rows, a block for each row, a cluster for each row (if there are clusters), and odd widths.
constexpr const char* specs[] = {
    "layernorm cols=256 x=bf16 gamma=f32",
    "rmsnorm cols=4096 x=bf16",
    "layernorm cols=1000 x=bf16 gamma=f32 stats=recompute",
    "layernorm cols=32768 x=bf16 gamma=bf16",
    "rmsnorm cols=333 x=bf16 gamma=f32",
};

std::chrono::duration<double> lasting() {
    const char* given = std::getenv("NORMJIT_STRESS_SECONDS");
    return std::chrono::duration<double>(given != nullptr ? std::strtod(given, nullptr) : 5);
}

/// Keeps the first error on any thread.
class Wrong {
  public:
    void add(const std::string& what) {
        const std::lock_guard lock(mutex_);
        if (first_.empty()) first_ = what;
        is_any_ = true;
    }
    void add(const char* call, const Status& status) {
        if (!status.ok()) add(fmt::format("{}: {}", call, status.message()));
    }
    bool is_any() const { return is_any_; }
    const std::string& first() const { return first_; }

  private:
    std::mutex mutex_;
    std::atomic<bool> is_any_ = false;
    std::string first_;
};

/// Some problems on a GPU, each with the results of a single launch.
struct Problems {
    explicit Problems(const Engine& on) : engine(on) {
        for (const char* spec : specs) {
            const Kernel kernel = gpu_kernel(engine, spec);
            tensors.emplace_back(engine, kernel, rows_each, 100);
            const Status status = kernel.launch(tensors.back().arguments(nullptr));
            REQUIRE_MESSAGE(status.ok(), status.message());
            expected.push_back(tensors.back().outputs());
        }
    }
    const Engine engine;
    std::vector<GpuTensors> tensors;
    std::vector<GpuTensors::Bytes> expected;
};

/// Prepares, launches and compares until the time is over; returns the number of launches.
int64_t launch_on_and_on(const Problems& problems, uint64_t start, Wrong& wrong) {
    Random random(start);
    const auto stream = *cuda::WorkStream::create(gpu_of(problems.engine));
    const auto end = std::chrono::steady_clock::now() + lasting();
    int64_t launches = 0;
    while (std::chrono::steady_clock::now() < end && !wrong.is_any()) {
        const auto which = static_cast<size_t>(random.between(0, std::ssize(specs) - 1));
        const auto kernel = problems.engine.prepare(*parse_spec(specs[which]), {.stream = stream->handle()});
        if (!kernel.ok()) return wrong.add("prepare", kernel.status()), launches;
        for (int64_t i = random.between(1, 20); i > 0; --i, ++launches)
            wrong.add("launch", kernel->launch(problems.tensors[which].arguments(stream->handle())));
        wrong.add("wait", stream->wait());
        if (problems.tensors[which].outputs() != problems.expected[which])
            wrong.add(fmt::format("{}: other bits", specs[which]));
        problems.tensors[which].spoil();
    }
    return launches;
}

/// Runs 16 threads, spread over the engines.
void launch_from_threads(const std::vector<Engine>& engines) {
    std::vector<std::unique_ptr<Problems>> problems;
    for (int i = 0; i < threads; ++i)
        problems.push_back(std::make_unique<Problems>(engines[static_cast<size_t>(i) % engines.size()]));
    Wrong wrong;
    std::atomic<int64_t> launches = 0;
    at_once(threads, [&](int i) {
        launches += launch_on_and_on(*problems[static_cast<size_t>(i)], seed() + static_cast<uint64_t>(i), wrong);
    });
    MESSAGE(launches.load(), " launches on ", engines.size(), " GPUs");
    CHECK(wrong.first() == "");
    CHECK(launches > threads);
}

/// Captures the launch as a graph in the global mode, in which no thread may make calls that graphs do not allow.
Status capture_globally(const cuda::Gpu& gpu, const cuda::WorkStream& stream, const Kernel& kernel,
                        const GpuTensors& tensors) {
    const cuda::Driver& driver = gpu.driver();
    auto* const handle = static_cast<cuda::Stream>(stream.handle());
    const cuda::ContextScope scope(gpu);
    const Status begun = driver.check(driver.cuStreamBeginCapture(handle, cuda::capture_global), "begin");
    if (!begun.ok()) return begun;
    const Status launched = kernel.launch(tensors.arguments(stream.handle()));
    cuda::Graph graph = nullptr;
    const Status ended = driver.check(driver.cuStreamEndCapture(handle, &graph), "end");
    if (graph != nullptr) driver.cuGraphDestroy(graph);
    return launched.ok() ? ended : launched;
}

}  // namespace

TEST_CASE("16 threads with separate streams, one GPU") {
    const auto engine = gpu_engine();
    if (engine) launch_from_threads({*engine});
}

TEST_CASE("16 threads with separate streams, two GPUs") {
    const auto one = gpu_engine();
    if (!one) return;
    const auto two = Engine::create({.device = "cuda:1", .parallel_for = {}});
    if (!two.ok()) {
        MESSAGE("skipped: no second GPU: ", two.status().message());
        return;
    }
    launch_from_threads({*one, *two});
}

TEST_CASE("graphs are captured and launched while other threads prepare new kernels") {
    const auto engine = gpu_engine();
    if (!engine) return;
    const Problems problems(*engine);
    const auto gpu = gpu_of(*engine);
    Wrong wrong;
    std::atomic<bool> goes_on = true;
    std::atomic<int64_t> prepared = 0, captured = 0;
    constexpr int preparing = 4, capturing = 4;
    std::vector<GpuTensors> own;  // the tensors of each thread that captures
    for (int i = 0; i < capturing; ++i) own.emplace_back(*engine, gpu_kernel(*engine, specs[1]), rows_each, 100);
    const auto prepare = [&](int i, const cuda::WorkStream* stream) {
        for (int64_t cols = 1024 + i; goes_on && !wrong.is_any(); cols += preparing, ++prepared) {
            const Spec spec = *parse_spec(fmt::format("rmsnorm cols={} x=bf16", cols));
            wrong.add("prepare", engine->prepare(spec, {.stream = stream->handle()}).status());
        }
    };
    const auto capture = [&](const GpuTensors& tensors, const cuda::WorkStream* stream) {
        // If another thread captures in the global mode, these copies are forbidden as well.
        const cuda::RelaxedCapture relaxed(gpu->driver());
        const Kernel kernel = *engine->prepare(*parse_spec(specs[1]), {.stream = stream->handle()});
        const auto end = std::chrono::steady_clock::now() + lasting();
        for (; std::chrono::steady_clock::now() < end && !wrong.is_any(); ++captured) {
            wrong.add("global capture", capture_globally(*gpu, *stream, kernel, tensors));
            tensors.spoil();
            const auto graph = stream->capture([&] { return kernel.launch(tensors.arguments(stream->handle())); });
            wrong.add("capture", graph.status());
            if (!graph.ok()) break;
            wrong.add("graph", stream->launch(*graph));
            wrong.add("wait", stream->wait());
            if (tensors.outputs() != problems.expected[1]) wrong.add("a graph's launch has other bits");
        }
        goes_on = false;
    };
    std::vector<std::unique_ptr<cuda::WorkStream>> streams;
    for (int i = 0; i < preparing + capturing; ++i) streams.push_back(*cuda::WorkStream::create(gpu));
    at_once(preparing + capturing, [&](int i) {
        const cuda::WorkStream* stream = streams[static_cast<size_t>(i)].get();
        if (i < preparing) return prepare(i, stream);
        capture(own[static_cast<size_t>(i - preparing)], stream);
    });
    MESSAGE(captured.load(), " captures, ", prepared.load(), " kernels prepared meanwhile");
    CHECK(wrong.first() == "");
    CHECK(captured > capturing);
    CHECK(prepared > 0);
}
