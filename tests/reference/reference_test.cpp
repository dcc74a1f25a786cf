// SPDX-License-Identifier: Apache-2.0
#include "reference.h"

#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::reference;

namespace {

using Inputs = PerTensor<std::vector<double>>;

TEST_CASE("repeated rows count as often as they are repeated") {
    const Spec spec = *parse_spec("layernorm cols=3 x=f32");
    PerTensor<std::vector<double>> made, all;
    const int64_t made_rows = 3, rows = 8;
    for (const Tensor tensor : {Tensor::x, Tensor::dy, Tensor::gamma, Tensor::mean, Tensor::rstd}) {
        const int64_t each = info(tensor).axes.column ? 3 : 1;
        const bool is_column = info(tensor).axes.is_columns();
        for (int64_t i = 0; i < (is_column ? 3 : made_rows * each); ++i)
            made[tensor].push_back(0.25 * static_cast<double>((i * 7 + 3 * static_cast<int64_t>(tensor)) % 11) + 0.125);
        for (int64_t i = 0; i < (is_column ? 3 : rows * each); ++i)
            all[tensor].push_back(made[tensor][static_cast<size_t>(i) % made[tensor].size()]);
    }
    const Gradients expected = compute(spec, rows, all), got = compute_repeated(spec, made_rows, rows, made);
    for (const Tensor tensor : {Tensor::dgamma, Tensor::dbeta}) {
        for (size_t j = 0; j < 3; ++j) {
            CHECK(got[tensor][j].value == doctest::Approx(expected[tensor][j].value).epsilon(1e-14));
            CHECK(got[tensor][j].error == doctest::Approx(expected[tensor][j].error).epsilon(1e-12));
            const Gradient fewer = got[tensor][j].with_additions(rows, 4);
            CHECK(fewer.error < got[tensor][j].error);
            CHECK(fewer.error + 5 * got[tensor][j].error_per_addition == doctest::Approx(got[tensor][j].error));
            CHECK(got[tensor][j].with_additions(rows, 100).error == got[tensor][j].error);
        }
    }
    REQUIRE(got[Tensor::dx].size() == 9);
    for (size_t i = 0; i < 9; ++i) CHECK(got[Tensor::dx][i].value == expected[Tensor::dx][i].value);
}

}  // namespace

// By hand: xhat = -1, 1, 3; g = 1, 0, 2; c1 = (-1 + 0 + 6) / 3; c2 = 1.
TEST_CASE("one row of layernorm") {
    const Spec spec = *parse_spec("layernorm cols=3 dresidual=f32");
    Inputs inputs;
    inputs[Tensor::x] = {1, 2, 3};
    inputs[Tensor::mean] = {1.5};
    inputs[Tensor::rstd] = {2};
    inputs[Tensor::gamma] = {1, 5, -1};
    inputs[Tensor::dy] = {1, 0, -2};
    inputs[Tensor::dresidual] = {10, 20, 30};
    const Gradients gradients = compute(spec, 1, inputs);
    const double c1 = 5.0 / 3.0;
    const double dx[] = {2 * (1 + c1 - 1) + 10, 2 * (0 - c1 - 1) + 20, 2 * (2 - 3 * c1 - 1) + 30};
    for (size_t j = 0; j < 3; ++j) {
        CHECK(gradients[Tensor::dx][j].value == doctest::Approx(dx[j]).epsilon(1e-14));
        CHECK(gradients[Tensor::dx][j].error > 0);
        CHECK(gradients[Tensor::dx][j].error < 1e-4);
        CHECK(gradients[Tensor::dgamma][j].value == inputs[Tensor::dy][j] * (-1 + 2 * static_cast<double>(j)));
        CHECK(gradients[Tensor::dbeta][j].value == inputs[Tensor::dy][j]);
    }
}

TEST_CASE("rmsnorm has no c2 and no mean, and may compute its statistics") {
    Inputs inputs;
    inputs[Tensor::x] = {3, 4};
    inputs[Tensor::dy] = {1, 1};
    inputs[Tensor::gamma] = {0, 1};
    const Spec spec = *parse_spec("rmsnorm cols=2 stats=recompute eps=0 gamma_offset=1");
    const Gradients gradients = compute(spec, 1, inputs);
    const double rstd = 1 / std::sqrt(12.5);
    const double c1 = (1 * 3 * rstd + 2 * 4 * rstd) / 2;
    CHECK(gradients[Tensor::dx][0].value == doctest::Approx(rstd * (1 - 3 * rstd * c1)).epsilon(1e-14));
    CHECK(gradients[Tensor::dx][1].value == doctest::Approx(rstd * (2 - 4 * rstd * c1)).epsilon(1e-14));
    CHECK(gradients[Tensor::dgamma][1].value == doctest::Approx(4 * rstd).epsilon(1e-14));
}

TEST_CASE("xhat recovered from y is 0 where the scale is 0") {
    Inputs inputs;
    inputs[Tensor::x] = {7, 7};
    inputs[Tensor::gamma] = {2, 0};
    inputs[Tensor::beta] = {1, 1};
    inputs[Tensor::dy] = {1, 1};
    const Gradients gradients = compute(*parse_spec("layernorm cols=2 source=y out=dgamma"), 1, inputs);
    CHECK(gradients[Tensor::dgamma][0].value == 3);
    CHECK(gradients[Tensor::dgamma][1].value == 0);
}

TEST_CASE("a gradient that cancels keeps its error through where()") {
    const Spec spec = *parse_spec(
        "norm f(x[M,N], a[N], b[N]) -> y[M,N] { v = where(x, x, x * 2); y = v * a - v * b } "
        "cols=2 out=dx");
    Inputs inputs;
    inputs[*spec.find("x")] = {1, -1};
    inputs[*spec.find("a")] = inputs[*spec.find("b")] = {3, 3};
    inputs[*spec.find("dy")] = {1, 1};
    const Gradients gradients = compute(spec, 1, inputs);
    for (const Gradient& dx : gradients[*spec.find("dx")]) {
        CHECK(dx.value == 0);
        CHECK(dx.error > 1e-7);
        CHECK(dx.error < 1e-5);
    }
}

TEST_CASE("no result of a NaN is certain, and all others are") {
    const auto uncertain_of = [](const std::string& body) {
        const Spec spec = *parse_spec("norm f(x[M,N]) -> y[M,N] { y = " + body + " } cols=16 pass=forward");
        Inputs inputs;
        inputs[*spec.find("x")].assign(48, 1);
        inputs[*spec.find("x")][17] = std::numeric_limits<double>::quiet_NaN();
        const Gradients outputs = compute(spec, 3, inputs);
        int64_t uncertain = 0;
        for (const Gradient& y : outputs[*spec.find("y")]) uncertain += std::isfinite(y.error) ? 0 : 1;
        return uncertain;
    };
    for (const char* body :
         {"max(0, x)", "min(1, x)", "compare(x, 0)", "compare(0, x)", "where(x, 1, 2)", "clamp(x, 0, 1)"})
        CHECK_MESSAGE(uncertain_of(body) == 1, std::string(body));
    for (const char* body : {"x - row_max(x)", "x * row_min(x)", "x / group_max(x, 16)"})
        CHECK_MESSAGE(uncertain_of(body) == 16, std::string(body));
    for (const char* body : {"min(x, nan)", "where(nan, x, 2)"})
        CHECK_MESSAGE(uncertain_of(body) == 48, std::string(body));
    const Spec spec = *parse_spec("norm f(x[M,N]) -> y[M,N], a[] { y = x; a = max_abs(x) } cols=3 pass=forward");
    Inputs inputs;
    inputs[*spec.find("x")] = {1, std::numeric_limits<double>::quiet_NaN(), 2};
    CHECK(!std::isfinite(compute(spec, 1, inputs)[*spec.find("a")][0].error));
}

TEST_CASE("without rows the sums are zero") {
    Inputs inputs;
    inputs[Tensor::gamma] = {1, 1};
    const Gradients gradients = compute(*parse_spec("layernorm cols=2"), 0, inputs);
    CHECK(gradients[Tensor::dx].empty());
    CHECK(gradients[Tensor::dbeta].size() == 2);
    CHECK(gradients[Tensor::dbeta][1].value == 0);
}

TEST_CASE("agreement allows for the rounding of the type") {
    CHECK(agrees({1, 0}, 1, DType::bf16));
    CHECK(!agrees({1, 0}, 1 + 0x1p-7, DType::bf16));
    CHECK(agrees({1 + 0x1p-8, 0x1p-20}, 1 + 0x1p-7, DType::bf16));
    CHECK(agrees({1 + 0x1p-8, 0x1p-20}, 1, DType::bf16));
    CHECK(!agrees({1 + 0x1p-8, 0x1p-20}, 1 - 0x1p-8, DType::bf16));
    CHECK(agrees({65530, 0}, std::numeric_limits<double>::infinity(), DType::f16));
    CHECK(!agrees({65000, 1}, std::numeric_limits<double>::infinity(), DType::f16));
    CHECK(!agrees({1, 0.5}, std::numeric_limits<double>::quiet_NaN(), DType::f32));
    CHECK(agrees({1, std::numeric_limits<double>::infinity()}, std::numeric_limits<double>::quiet_NaN(), DType::f32));
}
