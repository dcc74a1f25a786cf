// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver.h"

#include "normjit/engine.h"

#include <cstddef>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

Status create(const char* device) { return Engine::create({.device = device, .parallel_for = {}}).status(); }

}  // namespace

TEST_CASE("without a driver there is a reason") {
    const Status none = cuda::open_driver("libnormjit-has-no-such-library.so").status();
    CHECK(none.code() == Code::unavailable);
    CHECK(none.message().starts_with("cuda: no driver: "));
    CHECK(none.message().find("libnormjit-has-no-such-library.so") != std::string::npos);

    const Status other = cuda::open_driver("libc.so.6").status();
    CHECK(other.code() == Code::unavailable);
    CHECK(other.message() == "cuda: the driver is too old: it tells no version; it must support CUDA 11.8");
}

TEST_CASE("names of devices") {
    for (const char* wrong : {"", "tpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:0 ", "cuda:99999999999"}) {
        CHECK(create(wrong).code() == Code::invalid_argument);
    }
    CHECK(create("tpu").message() == "engine: device: 'tpu'; must be cpu or cuda:<number>");
    const Status gpu = create("cuda:0");
    if (!gpu.ok()) {
        CHECK(gpu.code() == Code::unavailable);
        CHECK(gpu.message().starts_with("cuda: "));
    }
    CHECK(create("cuda:1000").code() == Code::unavailable);
}

TEST_CASE("versions as text") {
    CHECK(cuda::version_text(11080) == "11.8");
    CHECK(cuda::version_text(13020) == "13.2");
}
