// SPDX-License-Identifier: Apache-2.0
// Compares each element-wise op of the IR in compiled code with long double: errors in ulp, and results for NaN,
// infinities and zeros. Also checks that all code generators for CPUs give the same bits.
#include "backend/backend.h"
#include "check.h"
#include "device_image.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "support/try.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

using Real = long double;

struct Function {
    std::string formula;  ///< a formula that reads x
    std::function<Real(Real)> exact;
    double ulps;  ///< the largest error of f32; f64 may have a quarter more, and a GPU 2
    std::function<Real(Real)> more = [](Real) { return 0.0L; };  ///< what a GPU may have besides, by argument
};

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real gelu_argument(Real x) { return std::sqrt(8 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x); }
/// A relative error in the argument of exp becomes a relative error of its value, multiplied by the argument.
Real gelu_condition(Real x) { return std::isfinite(x) ? 4 * std::fabs(gelu_argument(x)) : 0; }

Real compare(Real a, Real b) { return a > b ? 1 : a < b ? -1 : a == b ? 0 : a + b; }

Real round_e8m0(Real x) {
    if (std::isnan(x)) return x;
    const Real size = std::clamp(x, 0x1p-127L, 0x1p127L), power = std::ldexp(1.0L, std::ilogb(size));
    return power < size ? 2 * power : power;
}

/// Rounds the nearest f32 to `digits` binary digits and a multiple of 2^least. Beyond `largest` the result is infinity.
Real rounded(Real x, int digits, int least, Real largest) {
    const Real number = static_cast<float>(x);
    if (number == 0 || !std::isfinite(number)) return number;
    const Real step = std::ldexp(1.0L, std::max(std::ilogb(number) - digits + 1, least));
    const Real nearest = std::nearbyint(number / step) * step;
    return std::fabs(nearest) > largest ? std::copysign(std::numeric_limits<Real>::infinity(), nearest) : nearest;
}

const Function functions[] = {
    {"abs(x)", [](Real x) { return std::fabs(x); }, 0},
    {"sqrt(x)", [](Real x) { return std::sqrt(x); }, 0.5},
    {"min(x, 1.5)", [](Real x) { return x > 1.5L ? 1.5L : x; }, 0},
    {"max(x, 0 - 1.5)", [](Real x) { return x < -1.5L ? -1.5L : x; }, 0},
    {"max(x, -inf)", [](Real x) { return x; }, 0},
    {"max(x, nan)", [](Real) { return std::numeric_limits<Real>::quiet_NaN(); }, 0},
    {"min(nan, x)", [](Real) { return std::numeric_limits<Real>::quiet_NaN(); }, 0},
    {"min(x, abs(x))", [](Real x) { return x; }, 0},
    {"max(abs(x), x)", [](Real x) { return std::fabs(x); }, 0},
    {"compare(x, 1.5)", [](Real x) { return compare(x, 1.5L); }, 0},
    {"round(x)", [](Real x) { return std::nearbyint(x); }, 0},
    {"round_bf16(x)", [](Real x) { return rounded(x, 8, -133, 0x1.fep127L); }, 0},
    {"round_f16(x)", [](Real x) { return rounded(x, 11, -24, 65504); }, 0},
    {"round_e8m0(x)", round_e8m0, 0},
    {"exp(x)", [](Real x) { return std::exp(x); }, 1.1},
    {"exp2(x)", [](Real x) { return std::exp2(x); }, 1.1},
    {"sigmoid(x)", sigmoid, 1.8},
    {"silu(x)", [](Real x) { return std::isinf(x) && x < 0 ? -0.0L : x * sigmoid(x); }, 2},
    {"tanh(x)", [](Real x) { return std::tanh(x); }, 2},
    {"log(x)", [](Real x) { return std::log(x); }, 1.5},
    {"log1p(x)", [](Real x) { return std::log1p(x); }, 1.5},
    {"softplus(x)", [](Real x) { return (x <= 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x))); }, 2},
    {"erf(x)", [](Real x) { return std::erf(x); }, 2},
    {"gelu(x)", [](Real x) { return std::isinf(x) && x < 0 ? -0.0L : x / 2 * std::erfc(-x * std::sqrt(0.5L)); }, 2},
    {"gelu_tanh(x)", [](Real x) { return std::isinf(x) && x < 0 ? -0.0L : x * sigmoid(gelu_argument(x)); }, 2,
     gelu_condition},
};

Expected<Kernel> make_function_kernel(const Case& a_case, const std::string& formula) {
    const std::string_view type = name(a_case.spec.compute());
    const std::string text = fmt::format("norm cols={} compute={}\n  in  x: {}[M,N]\n  y = {}\n  out y: {}[M,N]\n",
                                         a_case.spec.cols, type, type, formula, type);
    NORMJIT_TRY(ir::Function function, ir::parse(text));
    NORMJIT_TRY(function, passes::run_pipeline(std::move(function), a_case.target));
    NORMJIT_TRY(const plan::Plan plan, plan::build(a_case.spec, a_case.schedule, a_case.target, std::move(function)));
    NORMJIT_TRY(const backend::Backend* backend, backend::find(a_case.target));
    NORMJIT_RETURN_IF_ERROR(backend->legal(plan));
    NORMJIT_TRY(const Artifact artifact, backend->emit(plan));
    return engine(1).load(artifact);
}

Case case_of(DType type, const Target& target, int64_t count) {
    Case made;
    made.target = target;
    made.spec = *parse_spec(fmt::format("rmsnorm pass=forward cols=250 gamma=none out=y x={}", name(type)));
    made.schedule = heuristic(made.spec, target);
    made.rows = (count + made.spec.cols - 1) / made.spec.cols;
    return made;
}

/// Returns the values of a formula, or why there are none.
std::vector<double> values(const Case& a_case, const std::string& formula, const std::vector<double>& x) {
    const auto kernel = make_function_kernel(a_case, formula);
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    Inputs inputs;
    inputs[Tensor::x] = x;
    inputs[Tensor::x].resize(elements(a_case, Tensor::x), 1.0);
    const Problem problem(a_case, kernel->artifact().geometry, make_layout(a_case), inputs);
    REQUIRE(launch(*kernel, problem) == "");
    std::vector<double> y = problem.numbers(Tensor::y);
    y.resize(x.size());
    return y;
}

template <class T>
Real ulp(Real value) {
    const T magnitude = std::max(static_cast<T>(std::fabs(value)), std::numeric_limits<T>::min());
    if (std::isinf(magnitude)) return 1;
    return static_cast<Real>(std::ldexp(std::numeric_limits<T>::epsilon(), std::ilogb(magnitude)));
}

/// Returns numbers of all exponents and signs, numbers of the size of activations, and numbers close to 0 and 1.
template <class T>
std::vector<double> arguments(Random& random, int64_t count) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    std::vector<double> x;
    for (int64_t i = 0; i < count; ++i) {
        T value = std::bit_cast<T>(static_cast<Bits>(random.bits()));
        if (i % 4 == 1) value = static_cast<T>(random.real(-20, 20));
        if (i % 4 == 2) value = static_cast<T>(random.real(-120, 120));
        if (i % 4 == 3) value = static_cast<T>((i & 4) != 0 ? random.real(-1, 1) : 1 + random.real(-0.1, 0.1));
        if (std::isfinite(value)) x.push_back(static_cast<double>(value));
    }
    return x;
}

template <class T>
std::string check_accuracy(const Function& function, const std::vector<double>& x, const std::vector<double>& y) {
    const double slack = sizeof(T) == 8 ? 0.25 : 0;
    const double allowed =
        function.ulps > 0.5 ? function.ulps + slack + (on_gpu() ? 2 : 0) : function.ulps;  // CUDA's exp is off by 2
    for (size_t i = 0; i < x.size(); ++i) {
        const Real exact = function.exact(static_cast<Real>(x[i]));
        const bool overflows = std::fabs(exact) > static_cast<Real>(std::numeric_limits<T>::max());
        const Real expected = overflows ? std::copysign(std::numeric_limits<Real>::infinity(), exact) : exact;
        if (std::isnan(expected) ? std::isnan(y[i]) : static_cast<Real>(y[i]) == expected) continue;
        // Digits may be lost below the smallest normal number.
        const Real error = std::fabs(static_cast<Real>(y[i]) - exact);
        if (error <= static_cast<Real>(std::numeric_limits<T>::min())) continue;
        const Real ulps = error / ulp<T>(exact);
        if (!(ulps <= allowed + (on_gpu() ? function.more(static_cast<Real>(x[i])) : 0)))
            return fmt::format("{} of {} is {}, not {}: {} ulp", function.formula, x[i], y[i],
                               static_cast<double>(exact), static_cast<double>(ulps));
    }
    return {};
}

std::vector<double> special_arguments(DType type) {
    const double infinity = std::numeric_limits<double>::infinity();
    const bool wide = type == DType::f64;
    const double largest = wide ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
    const double denormal = wide ? std::numeric_limits<double>::denorm_min() : std::numeric_limits<float>::denorm_min();
    const double normal = wide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
    std::vector<double> x = {std::nan(""), infinity, largest, normal, normal / 2, denormal, 0, 1, 0.75, 1.5, 2};
    for (const double limit : {88.0, 89.0, 104.0, 150.0, 709.0, 710.0, 745.0, 746.0, 1000.0}) x.push_back(limit);
    for (size_t i = x.size(); i-- > 1;) x.push_back(-x[i]);
    return x;
}

}  // namespace

TEST_CASE("functions are accurate, on every processor and in both types") {
    if (!machine().ok()) return;
    Random random(seed());
    const auto count = rounds(20000);
    const std::vector<double> f32 = arguments<float>(random, count), f64 = arguments<double>(random, count);
    for (const Target& target : code_generators()) {
        CAPTURE(to_text(target));
        for (const Function& function : functions) {
            CAPTURE(function.formula);
            CHECK(check_accuracy<float>(function, f32,
                                        values(case_of(DType::f32, target, count), function.formula, f32)) == "");
            CHECK(check_accuracy<double>(function, f64,
                                         values(case_of(DType::f64, target, count), function.formula, f64)) == "");
        }
    }
}

TEST_CASE("functions have the limits at infinities, NaN for NaN, and the signs of zeros") {
    if (!machine().ok()) return;
    for (const Target& target : code_generators()) {
        CAPTURE(to_text(target));
        for (const DType type : {DType::f32, DType::f64}) {
            const std::vector<double> x = special_arguments(type);
            for (const Function& function : functions) {
                const std::vector<double> y = values(case_of(type, target, 1), function.formula, x);
                CHECK((type == DType::f32 ? check_accuracy<float>(function, x, y)
                                          : check_accuracy<double>(function, x, y)) == "");
            }
            for (const std::string odd : {"tanh(x)", "silu(x)", "gelu_tanh(x)", "erf(x)", "gelu(x)"}) {
                const std::vector<double> y = values(case_of(type, target, 1), odd, {0.0, -0.0});
                CHECK(!std::signbit(y[0]));
                CHECK(std::signbit(y[1]));
            }
        }
    }
}

TEST_CASE("code generators for CPUs with FMAs make the same bits of functions") {
    if (!machine().ok() || on_gpu()) return;
    Random random(seed());
    const auto count = rounds(20000);
    const std::vector<double> f32 = arguments<float>(random, count), f64 = arguments<double>(random, count);
    for (const Target& target : code_generators()) {
        if (target.isa == Isa::x86_64 || target.cpu.backend == BackendChoice::portable) continue;
        CAPTURE(to_text(target));
        for (const Function& function : functions) {
            CAPTURE(function.formula);
            for (const DType type : {DType::f32, DType::f64}) {
                const std::vector<double>& x = type == DType::f32 ? f32 : f64;
                const std::vector<double> ours = values(case_of(type, *machine(), count), function.formula, x);
                const std::vector<double> others = values(case_of(type, target, count), function.formula, x);
                for (size_t i = 0; i < x.size(); ++i) {
                    const bool same = std::isnan(ours[i])
                                          ? std::isnan(others[i])
                                          : std::bit_cast<uint64_t>(ours[i]) == std::bit_cast<uint64_t>(others[i]);
                    REQUIRE_MESSAGE(same, x[i], ": ", ours[i], " and ", others[i]);
                }
            }
        }
    }
}
