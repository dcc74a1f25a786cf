// SPDX-License-Identifier: Apache-2.0
// Tests unusable drivers, each with its reason.
#include "fake_gpu.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

std::string refusal() {
    const Status status = cuda::open_driver(NORMJIT_FAKE_CUDA).status();
    CHECK((status.ok() || status.code() == Code::unavailable));
    return status.message();
}

std::string refusal_when(const char* function, cuda::Result failure) {
    FakeCuda& fake = fake_driver();
    fake.failing = function;
    fake.failure = failure;
    const std::string message = refusal();
    fake.reset();
    return message;
}

}  // namespace

TEST_CASE("versions") {
    FakeCuda& fake = fake_driver();
    fake.version = 11080;
    CHECK(refusal() == "");
    fake.version = 11070;
    CHECK(refusal() == "cuda: the driver is too old: it supports CUDA 11.7; it must support CUDA 11.8");
    CHECK(refusal_when("cuDriverGetVersion", 1) ==
          "cuda: the driver is too old: it tells no version; it must support CUDA 11.8");
}

TEST_CASE("a driver that did not start is started again") {
    FakeCuda& fake = fake_driver();
    fake.failing = "cuInit";
    fake.failure = 2;
    static_cast<void>(cuda::driver());  // this works if another test has started the driver
    fake.reset();
    CHECK(cuda::driver().ok());
}

TEST_CASE("no device") {
    fake_driver().devices.clear();
    CHECK(refusal() == "cuda: the driver finds no device");
    CHECK(refusal_when("cuInit", cuda::error_no_device) == "cuda: the driver finds no device");
    CHECK(refusal_when("cuInit", cuda::error_stub_library) == "cuda: libcuda.so.1 is a stub for linking, not a driver");
    CHECK(refusal_when("cuInit", 719) ==
          "cuda: the driver does not start: cuda: cuInit: CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure");
    CHECK(refusal_when("cuInit", 804) == "cuda: the driver does not start: cuda: cuInit: error 804, unknown");
}
