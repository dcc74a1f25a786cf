// SPDX-License-Identifier: Apache-2.0
// Tests 8-bit elements code by code: the value that compiled code reads for each code, and the code that it stores for
// numbers around the midpoints between values.
#include "backend/backend.h"
#include "check.h"
#include "device_image.h"
#include "element.h"

#include <bit>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr DType types[] = {DType::e4m3, DType::e5m2, DType::i8};

/// Returns y, the rows of x copied from one type to another, or why there is none.
std::vector<double> copied(const Target& target, DType from, DType to, const std::vector<double>& x, int64_t cols) {
    Case made;
    made.target = target;
    const auto spec = parse_spec(fmt::format(
        "norm copy(x[M,N]) -> y[M,N] {{ y = x * 1 }} pass=forward cols={} x={} y={}", cols, name(from), name(to)));
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    made.spec = *spec;
    made.schedule = heuristic(made.spec, target);
    made.rows = (static_cast<int64_t>(x.size()) + cols - 1) / cols;
    const auto kernel = make_kernel(made, engine(1));
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    const Tensor in = *made.spec.find("x"), out = *made.spec.find("y");
    Inputs inputs;
    inputs[in] = x;
    inputs[in].resize(elements(made, in), 1.0);
    const Problem problem(made, kernel->artifact().geometry, make_layout(made), inputs);
    REQUIRE(launch(*kernel, problem) == "");
    std::vector<double> y = problem.numbers(out);
    y.resize(x.size());
    return y;
}

bool is_same(double a, double b) {
    return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

std::vector<double> values_of(DType type) {
    std::vector<double> values;
    for (int code = 0; code < 256; ++code) values.push_back(reference::decode(type, &code));
    return values;
}

/// Returns the values of a type, the midpoints between them and the two f32 next to each midpoint, and numbers beyond
/// the range.
std::vector<double> arguments(DType type) {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<double> x = {std::nan(""), 1e30, -1e30, static_cast<double>(infinity), -static_cast<double>(infinity),
                             1e-40};
    for (const double value : values_of(type)) {
        if (!std::isfinite(value)) continue;
        const double middle = value + std::copysign(reference::spacing(type, value) / 2, value);
        for (const double number : {value, middle}) {
            const auto exact = static_cast<float>(number);
            for (const float each : {exact, std::nextafter(exact, infinity), std::nextafter(exact, -infinity)})
                x.push_back(static_cast<double>(each));
        }
    }
    return x;
}

}  // namespace

TEST_CASE("8-bit elements are read as what they stand for") {
    if (!machine().ok()) return;
    for (const Target& target : code_generators()) {
        for (const DType type : types) {
            const std::vector<double> x = values_of(type);
            for (const int64_t cols : {256, 37, 8}) {
                const std::vector<double> y = copied(target, type, DType::f32, x, cols);
                for (size_t i = 0; i < x.size(); ++i)
                    REQUIRE_MESSAGE(is_same(reference::round_to(type, x[i]), y[i]), to_text(target), " ", name(type),
                                    ": ", x[i], " is ", y[i]);  // no infinity is ever stored
            }
        }
    }
}

TEST_CASE("numbers are rounded to the nearest 8-bit element, and large ones to the largest") {
    if (!machine().ok()) return;
    for (const Target& target : code_generators()) {
        for (const DType type : types) {
            const std::vector<double> x = arguments(type);
            for (const int64_t cols : {256, 37, 8}) {
                const std::vector<double> y = copied(target, DType::f32, type, x, cols);
                for (size_t i = 0; i < x.size(); ++i) {
                    REQUIRE_MESSAGE(is_same(reference::round_to(type, x[i]), y[i]), to_text(target), " ", name(type),
                                    ": ", x[i], " became ", y[i]);
                }
            }
        }
    }
}
