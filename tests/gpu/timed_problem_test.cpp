// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/problem.h"
#include "fake_gpu.h"

#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

TEST_CASE("each kernel is run once before and then once in each round, and each round has its time") {
    const FakeCuda& fake = fake_driver();
    const std::vector<Kernel> kernels(2, fake_kernel(fake_engine(), "layernorm cols=64", "cuda row_groups=4"));
    const auto driver = cuda::open_driver(NORMJIT_FAKE_CUDA);
    REQUIRE(driver.ok());
    const auto gpu = cuda::Gpu::open(*driver, 0);
    REQUIRE(gpu.ok());
    const auto problem = cuda::open_timed_problem(*gpu, kernels[0].artifact().spec, 9, {});
    REQUIRE_MESSAGE(problem.ok(), problem.status().message());
    constexpr int rounds = 10;  // more than are measured at a time
    const auto times = (*problem)->time(kernels, rounds);
    REQUIRE_MESSAGE(times.ok(), times.status().message());
    const std::vector<double> of_one(rounds, 1e-3);
    CHECK(*times == std::vector{of_one, of_one});
    CHECK(fake.launches.size() == 2 * (1 + rounds) * kernels[0].artifact().cuda_paths[0].launches.size());
}
