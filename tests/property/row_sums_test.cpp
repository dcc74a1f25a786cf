// SPDX-License-Identifier: Apache-2.0
// Row sums are as exact for the widest rows as for usual rows, because they are summed in stages.
#include "check.h"
#include "element.h"
#include "support/aligned_memory.h"

#include "normjit/engine.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Rows of equal numbers are the worst case, because each addition to a sum rounds in the same direction.
Case equal_numbers(Random& random) {
    Case drawn = random_plain_case(random);
    const int64_t cols = random.between(300'000, 3'000'000);
    const char* const type = random.chance(50) ? "bf16" : "f32";
    drawn.spec =
        *parse_spec(fmt::format("{} pass=forward cols={} x={} y={} gamma=none eps=0",
                                random.chance(50) ? "layernorm out=y,mean" : "rmsnorm out=y,rstd", cols, type, type));
    drawn.rows = random.between(1, 5);
    drawn.schedule = random_legal_schedule(random, drawn.spec, drawn.target);
    drawn.layout = 0;
    return drawn;
}

/// Returns dx of one row of layernorm without gamma, in double. reference::compute(), with its error bounds, takes 7 s
/// and gigabytes for a row of 2^24 columns.
std::vector<double> expected_dx(const std::vector<float>& x, const std::vector<float>& dy, double eps) {
    const auto cols = static_cast<double>(x.size());
    double sum = 0, squares = 0, c1 = 0, c2 = 0;
    for (const float value : x) sum += value;
    const double mean = sum / cols;
    for (const float value : x) squares += (value - mean) * (value - mean);
    const double rstd = 1 / std::sqrt(squares / cols + eps);
    for (size_t j = 0; j < x.size(); ++j) c1 += dy[j] * (x[j] - mean) * rstd, c2 += dy[j];
    c1 /= cols, c2 /= cols;
    std::vector<double> dx(x.size());
    for (size_t j = 0; j < x.size(); ++j) dx[j] = rstd * (dy[j] - (x[j] - mean) * rstd * c1 - c2);
    return dx;
}

}  // namespace

TEST_CASE("on CPUs the error of row sums does not grow with the columns") {
    constexpr int64_t cols = int64_t{1} << 24;
    const Spec spec =
        *parse_spec(fmt::format("layernorm rows=1 cols={} gamma=none stats=recompute eps=1e-5 out=dx", cols));
    std::mt19937 random(1);
    std::vector<float> x(cols), dy(cols), dx(cols);
    for (float& value : x) value = 100 + static_cast<float>(random()) * 0x1p-32f;
    for (float& value : dy) value = static_cast<float>(random()) * 0x1p-32f;
    const std::vector<double> expected = expected_dx(x, dy, 1e-5);
    for (const int threads : {1, 2}) {
        const auto engine = Engine::create({.threads = threads});
        REQUIRE(engine.ok());
        const auto kernel = engine->prepare(spec);
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        Arguments a{.rows = 1, .tensors = {}, .workspace_bytes = kernel->preferred_workspace(1)};
        const AlignedMemory workspace = allocate_aligned(workspace_alignment, a.workspace_bytes);
        a.workspace = workspace.get();
        a[Tensor::x] = {x.data(), DType::f32, cols}, a[Tensor::dy] = {dy.data(), DType::f32, cols};
        a[Tensor::dx] = {dx.data(), DType::f32, cols};
        const Status launched = kernel->launch(a);
        REQUIRE_MESSAGE(launched.ok(), launched.message());
        double worst = 0;
        for (size_t j = 0; j < dx.size(); ++j) worst = std::max(worst, std::abs(dx[j] - expected[j]));
        CAPTURE(threads);
        // dx is at most 2. A mean whose last bit is wrong, by 7.6e-6, causes 8e-5. The sums of many ranges, two per
        // core, are added one by one, which costs more than the ranges themselves.
        const auto schedule = std::get<CpuSchedule>(engine->choose(spec).schedule.device);
        CHECK(worst < 2e-4 * std::max(schedule.column_ranges / 64.0, 1.0));
    }
}

TEST_CASE("the mean and mean square of equal numbers are exact for the widest rows") {
    check_cases(20, equal_numbers, [](const Case& a_case) {
        const double number = reference::round_to(a_case.spec.dtype(Tensor::x), 1.1);
        Inputs inputs;
        inputs[Tensor::x].assign(elements(a_case, Tensor::x), number);
        const auto kernel = make_kernel(a_case, engine(a_case.threads));
        if (!kernel.ok()) return kernel.status().message();
        const Problem problem(a_case, kernel->artifact().geometry, make_layout(a_case), inputs);
        if (const std::string wrong = launch(*kernel, problem); !wrong.empty()) return wrong;
        const bool has_mean = a_case.spec.writes(Tensor::mean);
        const double expected = has_mean ? number : 1 / number;
        for (const double got : problem.numbers(has_mean ? Tensor::mean : Tensor::rstd)) {
            if (!(std::abs(got / expected - 1) < 1e-5)) return fmt::format("{} where {} is right", got, expected);
        }
        return std::string();
    });
}
