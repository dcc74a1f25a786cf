// SPDX-License-Identifier: Apache-2.0
// Tests values for groups of a row's columns, and the 8-bit elements that are scaled by them.
#include "check.h"
#include "device_image.h"
#include "element.h"
#include "random_spec.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr std::string_view blocks = "rmsnorm_blocks pass=forward";

Case case_of(const std::string& spec, const Target& target, int64_t rows) {
    Case made;
    const auto parsed = parse_spec(spec);
    REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
    made.spec = *parsed;
    made.target = target;
    made.schedule = heuristic(made.spec, target);
    made.rows = rows;
    return made;
}

/// Returns the elements of an output of a launch.
std::vector<double> launched(const Case& made, const Inputs& inputs, std::string_view output) {
    const auto kernel = make_kernel(made, engine(1));
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    const Problem problem(made, kernel->artifact().geometry, make_layout(made), inputs);
    REQUIRE(launch(*kernel, problem) == "");
    return problem.numbers(*made.spec.find(output));
}

Inputs inputs_of(const Case& made, const std::vector<double>& x) {
    Inputs inputs;
    inputs[*made.spec.find("x")] = x;
    return inputs;
}

/// Draws rmsnorm_blocks, or the most columns and groups that are allowed, with values that combine row sums and slices.
Case groups_case(Random& random) {
    const int64_t group = int64_t{16} << random.between(0, 4), cols = group * random.between(1, 20);
    const std::string type = random.pick({"f32", "bf16", "f16", "e4m3", "f64"});
    const bool wide = type == "f64";
    const std::string spec =
        random.chance(15) && !wide ? fmt::format("rmsnorm_mx pass=forward cols={} gamma=f32 y={} scale=e8m0",
                                                 32 * random.between(1, 40), random.pick({"e4m3", "e5m2", "bf16"}))
        : random.chance(30)        ? fmt::format("{} cols={} residual={} gamma={} y={} out=y,scale,h,rstd", blocks,
                                                 128 * random.between(1, 12), wide ? "f64" : "bf16", wide ? "f64" : "f32",
                                          wide ? "f64" : "e4m3")
                                   : fmt::format(
                                  "norm groups(x[S,M,N], gamma[S,N]) -> y[S,M,N], a[S,M,N/{0}], "
                                         "b[S,M,N/{0}], u[S,M,N] {{ v = silu(x) * gamma; c = x - row_mean(v); "
                                         "a = group_max(v, {0}) * row_max(x); b = group_max(abs(c), {0}) + 1; "
                                         "y = c / b + v; u = like(a, x) }} pass=forward cols={1} slices={2}",
                                  group, cols, random.between(1, 4));
    const auto parsed = parse_spec(fmt::format("{} x={}{}", spec, type, random.chance(15) ? " invariant=1" : ""));
    REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
    return random_case_of(random, *parsed, random_batch(random, *parsed));
}

}  // namespace

TEST_CASE("values for groups of columns agree with the reference, and nothing else is written") {
    check_cases(200, groups_case, check_against_reference);
}

TEST_CASE("8-bit elements are those of the f32 result with the same scales, rounded once") {
    if (!machine().ok()) return;
    Random random(7);
    for (const Target& target : code_generators()) {
        for (const int64_t cols : {128, 384, 2048}) {
            const std::string spec = fmt::format("{} cols={} x=bf16", blocks, cols);
            const Case narrow = case_of(spec + " y=e4m3", target, 5);
            Case whole = case_of(spec + " y=f32", target, 5);
            whole.schedule = narrow.schedule;
            std::vector<double> x(static_cast<size_t>(5 * cols));
            for (double& each : x) each = random.real(-3, 3) * std::exp2(random.between(-8, 8));
            const auto y = launched(narrow, inputs_of(narrow, x), "y"),
                       exact = launched(whole, inputs_of(whole, x), "y");
            const auto scale = launched(narrow, inputs_of(narrow, x), "scale");
            CHECK(scale == launched(whole, inputs_of(whole, x), "scale"));
            REQUIRE(scale.size() == x.size() / 128);
            for (size_t i = 0; i < y.size(); ++i)
                REQUIRE_MESSAGE(y[i] == reference::round_to(DType::e4m3, exact[i]), to_text(narrow));
        }
    }
}

TEST_CASE("a group with a NaN or an infinity does not reach its neighbours") {
    if (!machine().ok()) return;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const std::string spec =
        "norm f(x[M,N]) -> y[M,N], g[M,N/32] { g = group_max(x, 32); y = x - g } pass=forward cols=128";
    for (const Target& target : code_generators()) {
        const Case made = case_of(spec + " x=f32", target, 3);
        std::vector<double> x(3 * 128, -1.5);
        x[128 + 40] = std::nan(""), x[128 + 70] = infinity, x[128 + 100] = -infinity;
        const auto g = launched(made, inputs_of(made, x), "g"), y = launched(made, inputs_of(made, x), "y");
        for (size_t i = 0; i < g.size(); ++i) {
            if (i == 4 + 1) {
                CHECK(std::isnan(g[i]));
            } else {
                CHECK(g[i] == (i == 4 + 2 ? infinity : -1.5));
            }
        }
        for (size_t j = 0; j < 32; ++j) CHECK(std::isnan(y[128 + 32 + j]));
        CHECK(y[128 + 31] == 0);
        CHECK(y[128 + 96] == 0);
    }
}

TEST_CASE("a power of two is stored as its exponent, rounded up") {
    if (!machine().ok()) return;
    constexpr int64_t cols = 16, rows = 600;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::vector<double> largest = {0, -1, -infinity, infinity, std::nan(""), 0x1p-149, 0x1.8p127, 0x1.fffffep127};
    for (int exponent = -127; exponent <= 127; ++exponent) {
        const auto power = static_cast<float>(std::ldexp(1.0, exponent));
        for (const float each : {power, std::nextafter(power, INFINITY)}) largest.push_back(static_cast<double>(each));
    }
    largest.resize(rows, 1.0);
    for (const Target& target : code_generators()) {
        const Case made = case_of(
            "norm f(x[M,N]) -> p[M,N/16], q?[M,N/16] { p = group_max(x, 16); q = round_e8m0(p) } "
            "pass=forward cols=16 x=f32 p=e8m0 q=f32 out=p,q",
            target, rows);
        std::vector<double> x;
        for (const double each : largest) x.insert(x.end(), static_cast<size_t>(cols), each);
        const auto p = launched(made, inputs_of(made, x), "p"), q = launched(made, inputs_of(made, x), "q");
        for (size_t i = 0; i < largest.size(); ++i) {
            const double right = reference::round_to(DType::e8m0, largest[i]);
            const bool is_same =
                std::isnan(right) ? std::isnan(p[i]) && std::isnan(q[i]) : p[i] == right && q[i] == right;
            REQUIRE_MESSAGE(is_same, to_text(target), ": ", largest[i], " is ", p[i], " and ", q[i]);
        }
    }
}
