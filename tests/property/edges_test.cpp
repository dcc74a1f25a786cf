// SPDX-License-Identifier: Apache-2.0
// Launches at the limits of what is accepted: no rows, one column, denormals, callers with unusual rounding modes, and
// offsets beyond 32 bits.
#include "check.h"
#include "device_image.h"
#include "element.h"
#include "random_spec.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/mman.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Checks the column sums; without rows there is no dx.
std::string check_zeros(const Case& a_case, const Inputs& inputs) {
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    const Problem problem(a_case, kernel->artifact().geometry, make_layout(a_case), inputs);
    if (const std::string wrong = launch(*kernel, problem); !wrong.empty()) return wrong;
    for (Tensor output : {Tensor::dx, Tensor::dresidual_in, Tensor::dgamma, Tensor::dbeta}) {
        if (!a_case.spec.has(output) || (output == Tensor::dbeta && a_case.rows > 0)) continue;
        if (a_case.spec.accumulates(output)) continue;  // compared with the reference below
        const auto numbers = problem.numbers(output);
        if (std::ranges::any_of(numbers, [](double number) { return number != 0; })) {
            return std::string(name(output)) + " is not zero";
        }
    }
    return {};
}

Case with_rows(Case drawn, int64_t rows) {
    drawn.rows = rows;
    if (drawn.spec.rows) drawn.spec.rows = rows;
    return drawn;
}

// Accesses the register that holds the calling thread's rounding mode, whether it flushes denormals, and which
// exceptions do not trap; but not the exception flags.
#if defined(__x86_64__)
constexpr uint64_t odd_rounding = 0x8040 | 0x6000;  // MXCSR: flush, denormals are zeros; towards zero
constexpr uint64_t masks = 0x1f80;
uint64_t rounding() { return __builtin_ia32_stmxcsr() & ~0x3fu; }
void set_rounding(uint64_t word) { __builtin_ia32_ldmxcsr(static_cast<unsigned>(word)); }
#else
constexpr uint64_t odd_rounding = 1 << 24 | 3 << 22;  // FPCR: the same
constexpr uint64_t masks = 0;                         // not all processors can trap
uint64_t rounding() {
    uint64_t word = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
void set_rounding(uint64_t word) { __asm__ volatile("msr fpcr, %0" ::"r"(word)); }
#endif

/// Runs `launch` while the calling thread flushes denormals, rounds towards zero, and traps every exception. On a GPU
/// there are no traps, because the CUDA driver itself divides inexactly.
template <class Launch>
auto with_odd_rounding(Launch launch) {
    const uint64_t usual = rounding(), odd = (usual | odd_rounding) & ~(on_gpu() ? 0 : masks);
    set_rounding(odd);
    auto result = launch();
    const bool kept = rounding() == odd;
    set_rounding(usual);
    return std::pair(std::move(result), kept);
}

/// Makes dy so small that products with it are denormal.
void shrink_gradient(const Case& a_case, Inputs& inputs) {
    const DType type = a_case.spec.dtype(Tensor::dy);
    const double scale = reference::smallest(type) * 64;
    for (double& dy : inputs[Tensor::dy]) dy = reference::round_to(type, std::fmod(dy, 64) * scale);
}

std::string check_denormals(const Case& a_case) {
    const auto kernel = make_kernel(a_case, engine(1));
    if (!kernel.ok()) return kernel.status().message();
    const Layout layout = make_layout(a_case);
    Inputs inputs = inputs_in_layout(a_case, layout);
    shrink_gradient(a_case, inputs);
    const Problem problem(a_case, kernel->artifact().geometry, layout, inputs);
    const auto [wrong, kept] = with_odd_rounding([&] { return launch(*kernel, problem); });
    if (!wrong.empty()) return wrong;
    if (!kept) return "the thread's rounding was changed";
    return compare(a_case, inputs, problem);
}

/// Draws a formula with a gradient that is summed over runs of columns, which the runtime does, not the kernel.
Case runs_case(Random& random) {
    const char* type = random.pick({"f32", "bf16", "f64"});
    const int64_t run = random.pick({1, 4, 40}), cols = run * random.between(1, 9);
    const Spec spec = *parse_spec(
        fmt::format("norm scaled(x[M,N], w[N/R]) -> y[M,N] {{ y = x * rsqrt(row_mean(x * x) + eps) * w }} R={} cols={} "
                    "x={} out=dx,dw",
                    run, cols, type));
    return random_case_of(random, spec, random_batch(random, spec));
}

std::string check_sums_of_runs(const Case& a_case) {
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    const Inputs inputs = inputs_in_layout(a_case, make_layout(a_case));
    const Outputs usual = run(a_case, *kernel, inputs);
    const auto [odd, kept] = with_odd_rounding([&] { return run(a_case, *kernel, inputs); });
    return kept ? difference(odd, usual) : "the thread's rounding was changed";
}

std::string check_same_code(const Case& a_case) {
    const std::string text = to_text(a_case.spec);
    const auto make = [&] { return compile(*parse_spec(text), a_case.schedule, a_case.target); };
    const auto usual = make();
    const auto [odd, kept] = with_odd_rounding(make);
    if (!usual.ok() || !odd.ok()) return (usual.ok() ? odd : usual).status().message();
    if (!kept) return "the thread's rounding was changed";
    return serialise(*usual) == serialise(*odd) ? "" : "the code is another one";
}

}  // namespace

TEST_CASE("without rows, column sums are zeros and nothing else is written") {
    const auto draw = [](Random& random) { return with_rows(random_case(random), 0); };
    check_cases(200, draw, [](const Case& a_case) { return check_zeros(a_case, random_inputs(a_case)); });
    check_cases(100, draw, check_against_reference);
}

TEST_CASE("one row is right") {
    const auto draw = [](Random& random) { return with_rows(random_case(random), 1); };
    check_cases(300, draw, check_against_reference);
}

TEST_CASE("one column under layernorm has no dx and no dgamma") {
    const auto draw = [](Random& random) {
        Case drawn = random_case(random);
        drawn.spec.norm = Norm::layernorm;
        drawn.spec.rounding = Rounding::none;
        drawn.spec.cols = 1;
        drawn.spec.source = Source::x;
        drawn.spec.tensors[Tensor::dresidual].reset();
        for (const Tensor tensor : {Tensor::mean, Tensor::rstd}) drawn.spec.set(tensor, drawn.spec.compute());
        if (drawn.spec.stats == Stats::recompute) drawn.spec.eps = 1e-5;
        drawn.spec = canonical(drawn.spec);
        drawn.schedule = random_legal_schedule(random, drawn.spec, drawn.target);
        return drawn;
    };
    check_cases(300, draw, [](const Case& a_case) {
        Inputs inputs = random_inputs(a_case);
        if (a_case.spec.reads(Tensor::mean)) inputs[Tensor::mean] = inputs[Tensor::x];
        return check_zeros(a_case, inputs);
    });
}

TEST_CASE("denormals are kept, however the caller rounds") {
    const auto draw = [](Random& random) {
        Case drawn = random_case(random);
        while (!drawn.spec.has(Tensor::dx)) drawn = random_case(random);
        return drawn;
    };
    check_cases(400, draw, check_denormals);
}

TEST_CASE("sums over runs of columns have the same bits, however the caller rounds") {
    check_cases(100, runs_case, check_sums_of_runs);
}

TEST_CASE("formulas are read and kernels made, whatever the caller traps") {
    if (!machine().ok() || on_gpu()) return;
    for (const char* text :
         {"norm a(x[M,N]) -> y[M,N] { y = x * 0.1 * 0.3 + x ^ 1.3 / 3 } cols=10",
          "norm a(x[M,N]) -> y[M,N] { y = x * (1 / (N - 1)) } cols=1",
          "norm a(x[M,N]) -> y[M,N] { y = x * 1e300 * 1e300 + (0 / 0) } cols=10 pass=forward",
          "norm a(x[M,N], w[N/R]) -> y[M,N] { y = gelu(x * k) * w } cols=6 R=3 k=0.7 out=dx,dw x=f64",
          "rmsnorm cols=1000 stats=recompute gamma_offset=0.3 eps=1e-7", "rmsnorm cols=9 gamma_offset=1e-320"}) {
        CAPTURE(text);
        const auto [reason, kept] = with_odd_rounding([&]() -> std::string {
            const auto spec = parse_spec(text);
            if (!spec.ok()) return spec.status().message();
            for (const char* other : {"sm_90", "aarch64"}) heuristic(*spec, *parse_target(other));
            const auto engine = Engine::create({.threads = 2});
            if (!engine.ok()) return engine.status().message();
            const auto kernel = engine->prepare(*spec, {.expected_rows = (int64_t{1} << 60) - 1});
            if (!kernel.ok()) return kernel.status().message();
            const auto read = parse_artifact(serialise(kernel->artifact()));
            return read.ok() ? engine->load(*read).status().message() : read.status().message();
        });
        CHECK(reason == "");
        CHECK(kept);
    }
}

TEST_CASE("a denormal number of a spec is not taken for zero, however the caller rounds") {
    if (on_gpu()) return;
    const auto refused = [] { return parse_spec("rmsnorm cols=10 gamma=none gamma_offset=1e-320").status().message(); };
    CHECK(with_odd_rounding(refused).first == refused());
    Spec spec = *parse_spec("rmsnorm cols=10 gamma=none");
    spec.gamma_offset = 1e-320;
    CHECK(with_odd_rounding([&] { return validate(spec).ok(); }).first == false);
}

TEST_CASE("the same code is made, however the caller rounds") {
    check_cases(200, [](Random& random) { return random_case(random); }, check_same_code);
}

TEST_CASE("offsets beyond 32 bits") {
    if (!machine().ok() || on_gpu()) return;  // see tests/runtime/cuda_test.cpp
    // 20 rows that are 2^29 bytes apart: 10 GiB of address space, of which 20 pages are touched.
    constexpr int64_t rows = 20, cols = 33, stride = 1 << 27;
    constexpr size_t bytes = sizeof(float) * stride * rows;
    const Spec spec = *parse_spec("layernorm cols=33 x=f32 gamma=none stats=recompute out=dx");
    const auto kernel = engine(2).load(*engine(2).compile(spec));
    REQUIRE(kernel.ok());
    std::vector<float> packed(rows * cols), expected(rows * cols);
    for (size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<float>(i * i % 17);
    Arguments arguments;
    arguments.rows = rows;
    for (Tensor tensor : {Tensor::x, Tensor::dy}) arguments[tensor] = {packed.data(), DType::f32, cols};
    arguments[Tensor::dx] = {expected.data(), DType::f32, cols};
    REQUIRE(kernel->launch(arguments).ok());

    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        MESSAGE("skipped: no 10 GiB of address space");
        return;
    }
    auto* far = static_cast<float*>(memory);
    for (int64_t row = 0; row < rows; ++row)
        std::copy_n(&packed[static_cast<size_t>(row * cols)], cols, far + row * stride);
    for (Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx}) arguments[tensor] = {far, DType::f32, cols, stride};
    CHECK(kernel->launch(arguments).ok());
    for (int64_t row = 0; row < rows; ++row) {
        CHECK(std::equal(far + row * stride, far + row * stride + cols, &expected[static_cast<size_t>(row * cols)]));
    }
    munmap(memory, bytes);
}
