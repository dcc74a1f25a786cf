// SPDX-License-Identifier: Apache-2.0
// Tests loading: the driver's calls and each of their errors, refusals while a graph is being captured, and drivers
// without libraries.
#include "cache/store.h"
#include "device/cuda/kernel.h"
#include "fake_gpu.h"
#include "temporary_folder.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <thread>

#include <dlfcn.h>
#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr const char* long_rows = "layernorm cols=65536 x=bf16";
constexpr const char* long_rows_schedule =
    "cuda row_groups=7 threads_per_row=512 vector_width=8 pipeline_depth=1 staging=bulk cluster=16";
constexpr const char* long_rows_unaligned = "normjit_layernorm_backward_bf16_65536_rows_unaligned";
constexpr const char* long_rows_image =
    "fake normjit_layernorm_backward_bf16_65536_rows normjit_layernorm_backward_bf16_65536_rows_unaligned "
    "normjit_layernorm_backward_bf16_65536_final_reduce";

}  // namespace

TEST_CASE("every path is loaded and made ready before the first launch") {
    const FakeCuda& fake = fake_driver();
    {
        const Artifact artifact = fake_artifact(long_rows, long_rows_schedule);
        const auto kernel = fake_engine().load(artifact);
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        CHECK(fake.images == std::vector<std::string>{long_rows_image});
        CHECK(fake.loaded == 1);
        CHECK(fake.preloaded == 4);
        CHECK(kernel->artifact() == artifact);
    }
    CHECK(fake.loaded == 0);
}

TEST_CASE("kernels with equal names are loaded side by side") {
    const FakeCuda& fake = fake_driver();
    const Engine engine = fake_engine();
    const Artifact sums = fake_artifact(long_rows, long_rows_schedule);
    const Artifact dx_alone = fake_artifact("layernorm cols=65536 x=bf16 out=dx", long_rows_schedule);
    REQUIRE(sums.cuda_paths[0].launches[0].entry == dx_alone.cuda_paths[0].launches[0].entry);
    auto first = engine.load(sums);
    const auto second = engine.load(dx_alone);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    CHECK(fake.loaded == 2);
    const auto launches_of = [&](const Kernel& kernel) {
        normjit_fake_cuda()->launches.clear();
        CHECK(kernel.launch(fake_arguments(kernel, 9)).ok());
        return launched();
    };
    CHECK(launches_of(*first) == std::vector<std::string>{"rows", "final_reduce"});
    CHECK(launches_of(*second) == std::vector<std::string>{"rows"});
    first = second;
    CHECK(fake.loaded == 1);
    CHECK(launches_of(*second) == std::vector<std::string>{"rows"});
}

TEST_CASE("an error in any driver call becomes a status, and leaves nothing behind") {
    FakeCuda& fake = fake_driver();
    const Artifact artifact = fake_artifact(long_rows, long_rows_schedule);
    REQUIRE(fake_engine().load(artifact).ok());
    // The calls that read the device, check for captures and load, but not the calls that leave a context or free.
    const std::vector<std::string> calls = fake.calls;
    int failures = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
        CAPTURE(calls[i]);
        CAPTURE(i);
        if (calls[i] == "cuLibraryUnload") break;  // later errors go unnoticed, and the code stays loaded
        fake.reset();
        fake.failing_call = static_cast<int>(i);
        EngineOptions options;
        options.device = "cuda:0";
        {
            const auto engine = Engine::create(options);
            const Status status = engine.ok() ? engine->load(artifact).status() : engine.status();
            const bool restores = calls[i] == "cuThreadExchangeStreamCaptureMode" &&
                                  std::find(calls.data(), &calls[i], calls[i]) != &calls[i];
            const bool ends = restores || calls[i] == "cuCtxPopCurrent" || calls[i] == "cuDevicePrimaryCtxRelease";
            const bool asks = calls[i] == "cuCtxGetCurrent" || calls[i] == "cuCtxGetDevice";
            if (!ends && !asks) {
                REQUIRE(!status.ok());
                REQUIRE(status.message().find("CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure") !=
                        std::string::npos);
                ++failures;
            }
        }
        REQUIRE(fake.loaded == 0);
        int mode = cuda::capture_global;  // an exchange that failed may have left another mode
        (*cuda::driver())->cuThreadExchangeStreamCaptureMode(&mode);
        while (normjit_fake_contexts() > 0) {  // a pop has failed
            REQUIRE(calls[i] == "cuCtxPopCurrent");
            cuda::Context popped = nullptr;
            (*cuda::driver())->cuCtxPopCurrent(&popped);
        }
    }
    CHECK(failures > 20);
}

TEST_CASE("compile and load are refused while a graph is captured") {
    const FakeCuda& fake = fake_driver();
    const Engine engine = fake_engine();
    const Artifact artifact = fake_artifact(long_rows, long_rows_schedule);
    cuda::Stream stream = nullptr;
    REQUIRE((*cuda::driver())->cuStreamCreate(&stream, 0) == cuda::error_none);
    constexpr std::string_view refusal = "cuda: a graph is being captured; compile and load before, launch inside";
    for (const cuda::Stream capturing : {stream, cuda::Stream(nullptr)}) {
        normjit_fake_capture(capturing, true);
        CHECK(engine.load(artifact, capturing).status().message() == refusal);
        CHECK(engine.compile(artifact.spec, artifact.schedule, capturing).status().message() == refusal);
        const auto prepared = engine.prepare(artifact.spec, artifact.schedule, {.stream = capturing});
        CHECK(prepared.status().message() == refusal);
        CHECK(prepared.status().code() == Code::capturing);
        CHECK(fake.loaded == 0);
        normjit_fake_capture(capturing, false);
        CHECK(engine.load(artifact, capturing).ok());
    }
    const Kernel kernel = *engine.load(artifact);
    normjit_fake_capture(stream, true);
    Arguments arguments = fake_arguments(kernel, 9);
    arguments.stream = stream;
    CHECK(kernel.launch(arguments).ok());  // it is loaded now, so a launch can be captured
    (*cuda::driver())->cuStreamDestroy(stream);
}

TEST_CASE("making a kernel in the background, or destroying one, does not affect another thread's capture") {
    const FakeCuda& fake = fake_driver();
    const TemporaryFolder folder;
    const Artifact artifact = fake_artifact(long_rows, long_rows_schedule);
    EngineOptions options;
    options.device = "cuda:0";
    options.cache.folder = folder.path();
    const auto engine = Engine::create(options);
    REQUIRE(engine.ok());
    REQUIRE(code_key(artifact.spec, artifact.schedule, engine->target()) == code_key(artifact));
    cache::Store(*cache::fill_in(options.cache), engine->target(), {}).keep(artifact);
    cuda::Stream stream = nullptr;
    REQUIRE((*cuda::driver())->cuStreamCreate(&stream, 0) == cuda::error_none);
    REQUIRE((*cuda::driver())->cuStreamBeginCapture(stream, cuda::capture_global) == cuda::error_none);
    {
        const PrepareOptions background{.on_miss = OnMiss::background, .stream = nullptr};
        const auto prepare = [&] { return engine->prepare(artifact.spec, artifact.schedule, background); };
        auto kernel = prepare();
        CHECK(kernel.status().code() == Code::pending);
        while (kernel.status().code() == Code::pending) std::this_thread::yield(), kernel = prepare();
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        CHECK(kernel->launch(fake_arguments(*kernel, 9)).ok());
        CHECK(engine->load(artifact).ok());  // it is loaded and unloaded at once
    }
    CHECK(fake.broken_captures == std::vector<std::string>());
    // This thread has its old mode again.
    cuda::DevicePointer pointer = 0;
    CHECK((*cuda::driver())->cuMemAlloc(&pointer, 8) == cuda::error_capture_unsupported);
    CHECK(fake.broken_captures == std::vector<std::string>{"cuMemAlloc"});
    (*cuda::driver())->cuStreamDestroy(stream);
}

TEST_CASE("code that the driver cannot use") {
    FakeCuda& fake = fake_driver();
    const Engine engine = fake_engine();
    Artifact artifact = fake_artifact(long_rows, long_rows_schedule);
    fake.jit_log = "ptxas fatal: too new";
    artifact.code = {'?', 0};
    const Status status = engine.load(artifact).status();
    CHECK(status.code() == Code::unavailable);
    CHECK(status.message().ends_with("\nptxas fatal: too new"));
    CHECK(fake.loaded == 0);

    artifact.code = fake_code({"normjit_layernorm_backward_bf16_65536_rows", long_rows_unaligned});
    const Status missing = engine.load(artifact).status();
    CHECK(missing.code() == Code::invalid_argument);
    CHECK(
        missing.message().starts_with("load: the artifact's code has no kernel "
                                      "normjit_layernorm_backward_bf16_65536_final_reduce: "));
    CHECK(fake.loaded == 0);

    artifact.code.clear();
    CHECK(engine.load(artifact).status().message().starts_with("load: the artifact's code does not fit "));
}

TEST_CASE("PTX gets the terminating zero that the driver requires") {
    const FakeCuda& fake = fake_driver();
    Artifact artifact = fake_artifact(long_rows, long_rows_schedule);
    artifact.format = CodeFormat::ptx;
    artifact.code.pop_back();
    artifact.code.shrink_to_fit();
    const auto kernel = fake_engine().load(artifact);
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    CHECK(fake.images[0] == long_rows_image);
}

TEST_CASE("a driver without libraries loads modules") {
    fake_driver();
    const auto driver = cuda::open_driver(NORMJIT_FAKE_CUDA_OLD);
    REQUIRE_MESSAGE(driver.ok(), driver.status().message());
    CHECK(!driver->has_libraries());
    // The old driver is a separate library with its own record.
    const auto old = reinterpret_cast<decltype(&normjit_fake_cuda)>(
        dlsym(dlopen(NORMJIT_FAKE_CUDA_OLD, RTLD_NOW | RTLD_NOLOAD), "normjit_fake_cuda"));
    FakeCuda& fake = *old();
    {
        const auto gpu = cuda::Gpu::open(*driver, 0);
        REQUIRE(gpu.ok());
        const auto kernel = cuda::load_kernel(*gpu, fake_artifact(long_rows, long_rows_schedule));
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        CHECK(fake.loaded == 1);
        CHECK(fake.preloaded == 4);
        CHECK(fake.attributes.at("normjit_layernorm_backward_bf16_65536_rows")
                  .at(cuda::non_portable_cluster_size_allowed) == 1);
        const Kernel loaded(*kernel);
        CHECK(loaded.launch(fake_arguments(loaded, 9)).ok());
        CHECK(fake.launches.size() == 2);
        CHECK(std::find(fake.calls.begin(), fake.calls.end(), "cuModuleLoadDataEx") != fake.calls.end());
    }
    CHECK(fake.loaded == 0);
    CHECK(fake.primary_uses.at(0) == 0);
}
