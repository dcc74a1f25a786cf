// SPDX-License-Identifier: Apache-2.0
// Tests in which context a call works, and that it leaves the contexts of the thread unchanged.
#include "device/cuda/gpu.h"
#include "fake_gpu.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr const char* spec = "rmsnorm cols=256 x=bf16";
constexpr const char* schedule = "cuda row_groups=4 threads_per_row=32 vector_width=8";

/// A context on the device with this ordinal that the caller has created and made current.
class OwnContext {
  public:
    explicit OwnContext(int ordinal) {
        const auto gpu = *cuda::Gpu::open(ordinal);
        REQUIRE(cuCtxCreate_v2(&context, 0, gpu->handle()) == cuda::error_none);
    }
    ~OwnContext() { cuCtxDestroy_v2(context); }
    cuda::Context context = nullptr;
};

cuda::Context current() {
    cuda::Context context = nullptr;
    (*cuda::driver())->cuCtxGetCurrent(&context);
    return context;
}

}  // namespace

TEST_CASE("without a current context, the primary one") {
    const FakeCuda& fake = fake_driver();
    {
        const Kernel kernel = fake_kernel(fake_engine(), spec, schedule);
        CHECK(fake.primary_uses.at(0) == 1);
        REQUIRE(kernel.launch(fake_arguments(kernel, 9)).ok());
        CHECK(fake.launches[0].context != nullptr);
        CHECK(normjit_fake_contexts() == 0);
        CHECK(fake.primary_uses.at(0) == 1);
    }
    CHECK(fake.primary_uses.at(0) == 0);
    CHECK(fake.loaded == 0);
}

TEST_CASE("a current context of the device is used") {
    const FakeCuda& fake = fake_driver();
    const Engine engine = fake_engine();
    const OwnContext own(0);
    const Kernel kernel = fake_kernel(engine, spec, schedule);
    REQUIRE(kernel.launch(fake_arguments(kernel, 9)).ok());
    for (const FakeLaunch& launch : fake.launches) CHECK(launch.context == own.context);
    CHECK(!fake.primary_uses.contains(0));
    CHECK(current() == own.context);
    CHECK(normjit_fake_contexts() == 1);
}

TEST_CASE("a current context of another device is replaced during the call") {
    const FakeCuda& fake = fake_driver();
    const Engine engine = fake_engine("cuda:0");
    const OwnContext own(1);
    const Kernel kernel = fake_kernel(engine, spec, schedule);
    REQUIRE(kernel.launch(fake_arguments(kernel, 9)).ok());
    CHECK(fake.primary_uses.at(0) == 1);
    for (const FakeLaunch& launch : fake.launches) CHECK(launch.context != own.context);
    CHECK(current() == own.context);
    CHECK(normjit_fake_contexts() == 1);
}

TEST_CASE("errors of contexts: nothing is launched, and no context stays current") {
    FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), spec, schedule);
    fake.failing = "cuCtxPushCurrent";
    const Status status = kernel.launch(fake_arguments(kernel, 9));
    CHECK(status.code() == Code::failed);
    CHECK(status.message().starts_with("cuda: making a context current: CUDA_ERROR_LAUNCH_FAILED"));
    CHECK(fake.launches.empty());
    CHECK(normjit_fake_contexts() == 0);

    fake.failure = cuda::error_not_initialized;
    CHECK(kernel.launch(fake_arguments(kernel, 9)).message().ends_with("start it by exec or spawn"));

    fake.reset();
    fake.failing = "cuDevicePrimaryCtxRetain";
    CHECK(fake_engine().load(kernel.artifact()).status().code() == Code::failed);
    CHECK(fake.loaded == 0);
}

TEST_CASE("two devices in one process") {
    const FakeCuda& fake = fake_driver();
    const Engine first = fake_engine("cuda:0"), second = fake_engine("cuda:1");
    CHECK(to_text(first.target()) == "sm_90 sms=132 shared=232448 l2=52428800");
    CHECK(to_text(second.target()) == "sm_80 sms=108 shared=166912 l2=41943040");
    const auto on_second = second.load(fake_artifact(spec, schedule, "sm_80"));
    REQUIRE_MESSAGE(on_second.ok(), on_second.status().message());
    const Kernel on_first = fake_kernel(first, spec, schedule);
    REQUIRE(on_first.launch(fake_arguments(on_first, 9)).ok());
    REQUIRE(on_second->launch(fake_arguments(*on_second, 9)).ok());
    REQUIRE(on_first.launch(fake_arguments(on_first, 9)).ok());
    REQUIRE(fake.launches.size() == 6);
    CHECK(fake.launches[0].context != fake.launches[2].context);
    CHECK(fake.launches[0].context == fake.launches[4].context);
    CHECK(fake.primary_uses.at(0) == 1);
    CHECK(fake.primary_uses.at(1) == 1);
    CHECK(fake.launches[1].dependent);
    CHECK(!fake.launches[3].dependent);  // sm_80 cannot make launches dependent

    const Status wrong = second.load(fake_artifact(spec, schedule, "sm_90")).status();
    CHECK(wrong.code() == Code::unavailable);
    CHECK(wrong.message().find("that architecture") != std::string::npos);
    EngineOptions third;
    third.device = "cuda:2";
    CHECK(Engine::create(third).status().message() == "cuda: no device 2; this process sees 2");
}
