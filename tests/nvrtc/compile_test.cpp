// SPDX-License-Identifier: Apache-2.0
// Compiles every kernel template with the heuristic's schedules, for every class of types and every architecture that
// this machine's NVRTC supports, and checks that data stays in registers.
#include "normjit/compile.h"

#include "backend/cuda/nvrtc.h"
#include "backend/cuda/source.h"
#include "plan/plan.h"
#include "random_spec.h"

#include "normjit/cuda_compiler.h"
#include "normjit/serialise.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace normjit {

namespace {

constexpr int architectures[] = {80, 86, 89, 90, 100, 120};

/// Rows in registers, asynchronous and bulk copies, clusters, and streaming, with different types, statistics and
/// outputs.
constexpr const char* specs[] = {
    "layernorm cols=256 x=bf16",
    "rmsnorm cols=32 x=f16 gamma=f32",
    "layernorm cols=1000 x=bf16 gamma=f32 dresidual=bf16",
    "layernorm cols=1024 x=f64 stats=recompute",
    "rmsnorm cols=2048 x=f16 stats=recompute",
    "layernorm cols=4096 x=bf16",
    "layernorm cols=4097 x=bf16",
    "rmsnorm cols=8192 x=bf16 dy=f32 dx=f32 out=dx",
    "layernorm cols=16384 x=f32 source=y",
    "layernorm cols=65536 x=bf16",
    "rmsnorm cols=262144 x=f16",
    "layernorm cols=3000000 x=bf16 stats=recompute",
    "layernorm pass=forward cols=64 x=f16 gamma=f32 out=y,mean,rstd",
    "layernorm pass=forward cols=768 x=bf16 gamma=f32",
    "rmsnorm pass=forward cols=1000 x=f32 y=bf16",
    "layernorm pass=forward cols=4096 x=bf16 gamma=f32 out=y,mean,rstd",
    "rmsnorm pass=forward cols=4097 x=bf16 residual=f32 rowscale=f32",
    "layernorm pass=forward cols=5120 x=bf16 gamma=f32",
    "rmsnorm pass=forward cols=4096 x=bf16",
    "layernorm pass=forward cols=6000 x=bf16",
    "layernorm pass=forward cols=8192 x=bf16",
    "layernorm pass=forward cols=8192 x=f16",
    "layernorm pass=forward cols=28672 x=f16",
    "rmsnorm pass=forward cols=8192 x=bf16",
    "layernorm pass=forward cols=16384 x=bf16",
    "layernorm pass=forward cols=8192 x=bf16 gamma=f32",
    "layernorm pass=forward cols=16384 x=bf16 gamma=f32",
    "layernorm pass=forward cols=65536 x=bf16 gamma=f32 residual=bf16",
    "layernorm pass=forward cols=131072 x=bf16 gamma=f32",
    "rmsnorm pass=forward cols=262144 x=bf16",
    "layernorm pass=forward cols=3000000 x=f64",
    "rmsnorm cols=4096 x=bf16 rounding=llama",
    "rmsnorm cols=1000 x=f16 gamma=f32 rounding=llama stats=recompute",
    "rmsnorm pass=forward cols=4096 x=bf16 residual=bf16 rounding=llama",
    "layernorm cols=4096 x=bf16 gamma=f32 out=dx,dgamma,dbeta,amax",
    "layernorm cols=4097 x=bf16 out=dx,amax",
    "rmsnorm cols=1000 x=f64 gamma=none out=amax",
    "layernorm cols=65536 x=bf16 out=dx,dgamma,dbeta,amax",
    "layernorm cols=3000000 x=bf16 out=dx,dgamma,amax",
};

/// Norms from the library.
constexpr const char* specs_of_formulas[] = {
    "gated_rmsnorm cols=128 x=bf16 gamma=f32",
    "gated_rmsnorm cols=4096 x=bf16 gamma=bf16",
    "gated_rmsnorm cols=4096 x=bf16 gamma=f32 save=none",
    "rmsnorm_of_gated rows=8192 cols=4096 x=bf16 gamma=bf16 save=none",
    "rmsnorm_of_gated pass=forward rows=1048576 cols=128 x=bf16 gamma=f32",
    "gated_rmsnorm pass=forward cols=8192 x=f16 gamma=f32 out=y,rstd",
    "rmsnorm_of_gated cols=4096 x=bf16 gamma=f32",
    "rmsnorm_of_gated cols=16384 x=bf16",
    "dynamic_tanh cols=1000 alpha=0.5 x=f32 gamma=f32 beta=f32",
    "l2norm cols=128 x=bf16",
    "groupnorm slices=32 rows=32 cols=40960 R=4096 x=bf16 gamma=f32 beta=f32",
    "groupnorm slices=32 rows=32 cols=40960 R=4096 x=f32 gamma=f32 beta=f32",
    "groupnorm slices=any cols=490 R=49 x=bf16 gamma=bf16",
    "groupnorm slices=32 cols=4000000 R=1000000 x=bf16 gamma=bf16 beta=bf16",
    "groupnorm pass=forward slices=32 rows=32 cols=40960 R=4096 x=bf16 gamma=f32 beta=f32",
    "norm per_run(x[M,N], gamma[N/4], w[N]) -> y[M,N] { y = x * rsqrt(row_mean(x * x) + eps) * gamma * w } cols=4096 "
    "x=bf16",
    "norm dyt(x[M,N], alpha[], gamma?[N]) -> y[M,N] { y = tanh(x * alpha) * gamma } cols=4096 x=bf16 gamma=f32 "
    "out=dx,dalpha,dgamma",
    "norm moments(x[M,N]) -> sum[N], spread[N] { sum = col_sum(x); spread = col_sum(x * x) - sum * sum } pass=forward "
    "cols=4096 x=bf16",
    "norm moments(x[S,M,N], y[S,M,N]) -> each[S,N], all[N] { each = col_sum(x) * col_sum(y); all = col_sum(x) + "
    "col_sum(x * y) } pass=forward slices=any cols=1000 x=f16",
    "norm f(x[M,N], a[N/8], b[N/8], c[N]) -> y[M,N] { y = x * (a + b + c) } cols=4096 x=bf16",
    "norm infinite(x[M,N]) -> y[M,N] { y = max(x * 1e39, -inf) + x * (0 / 0) } pass=forward cols=1000",
    "norm infinite(x[M,N]) -> y[M,N] { y = max(x * 1e39, -inf) + x * (0 / 0) } pass=forward cols=1000 x=f64",
    "softmax cols=1000 x=bf16",
    "softmax pass=forward cols=32768 x=bf16",
    "softmax pass=forward cols=200000 x=f32",
    "qk_norm_rope cols=128 slices=16 x=bf16 gamma=f32",
    "qk_norm_rope pass=forward cols=64 slices=any x=f16 gamma=f32 cos=f32 sin=f32 out=y,rstd",
    "qk_norm_rope cols=90 slices=3 x=bf16 save=none",
    "qk_norm_rope_interleaved cols=128 slices=16 x=bf16 gamma=f32",
    "qk_norm_rope_interleaved pass=forward cols=64 slices=any x=f16 gamma=f32 cos=f32 sin=f32 out=y,rstd",
    "qk_norm_rope_interleaved cols=90 slices=3 x=bf16 save=none",
    "qk_norm_rope_interleaved cols=200000 x=f64",
    "l2norm pass=forward cols=100 x=f64",
    "rmsnorm_e4m3 pass=forward cols=4096 x=bf16 residual=bf16 gamma=f32 y=e4m3 out=y,scale,h,rstd",
    "rmsnorm_e4m3 pass=forward rows=8192 cols=4096 x=bf16 gamma=bf16 y=e4m3",
    "rmsnorm_e4m3 pass=forward cols=7168 x=bf16 gamma=bf16 y=e4m3",
    "rmsnorm_e4m3 pass=forward cols=999 x=e4m3 y=e5m2",
    "rmsnorm_i8 pass=forward cols=4096 x=bf16 residual=bf16 gamma=f32 y=i8 out=y,scale,h,rstd",
    "rmsnorm_i8 pass=forward cols=999 x=i8 y=i8",
    "blocks_e4m3 pass=forward slices=56 cols=128 x=bf16 gamma=bf16 y=e4m3",
    "rmsnorm_blocks pass=forward cols=4096 x=bf16 residual=bf16 gamma=f32 y=e4m3 out=y,scale,h,rstd",
    "rmsnorm_blocks pass=forward rows=8192 cols=7168 x=bf16 gamma=bf16 y=e4m3",
    "rmsnorm_blocks pass=forward rows=32 cols=7168 x=bf16 gamma=bf16 y=e4m3",
    "rmsnorm_blocks pass=forward cols=128 x=bf16 y=e4m3",
    "rmsnorm_blocks pass=forward cols=16384 x=f32 y=e4m3",
    "rmsnorm_blocks pass=forward cols=3000064 x=bf16 gamma=f32 y=e4m3",
    "rmsnorm_mx pass=forward cols=4096 x=bf16 gamma=bf16 y=e4m3 scale=e8m0",
    "rmsnorm_mx pass=forward rows=8192 cols=7168 x=f16 residual=f16 gamma=f32 y=e5m2 scale=e8m0 out=y,scale,h",
    "norm groups(x[S,M,N], z[M,N]) -> y[S,M,N], g[S,M,N/16] { v = silu(x) * z; g = group_max(v, 16) + row_mean(v); y = "
    "v "
    "/ g } pass=forward slices=3 cols=2048 x=f16",
    "norm wide(x[M,N]) -> y[M,N], g[M,N/256] { g = group_max(x, 256); y = x - g } pass=forward cols=4096 x=f64",
    "gated_rmsnorm cols=128 x=bf16 z=e5m2 gamma=f32 dx=e5m2",
};

/// Formulas with more columns than a scale and a shift, more sweeps than a norm has, quotients and comparisons of
/// elements.
constexpr const char* specs_of_crowded_formulas[] = {
    "norm four(x[M,N], a[N], b[N], c[N], d[N]) -> y[M,N] { v = x * a + b; y = v * rsqrt(row_mean(v * v) + eps) * c + d "
    "} pass=forward cols=4096 x=bf16",
    "norm twice(x[M,N], g[N], b[N], h[N], d[N]) -> y[M,N] { c = x - row_mean(x); a = c * rsqrt(row_mean(c * c) + eps) "
    "* "
    "g + b; e = a - row_mean(a); y = e * rsqrt(row_mean(e * e) + eps) * h + d } pass=forward cols=1000 x=f16",
    "norm cubes(x[M,N]) -> y[M,N] { a = x - row_mean(x); b = a * rsqrt(row_mean(a * a) + eps); c = b * b * b; y = c * "
    "rsqrt(row_mean(c * c) + eps) } cols=16384 x=f16",
    "norm range(x[M,N], g[N], b[N]) -> y[M,N] { low = row_min(x); y = (x - low) / (row_max(x) - low + eps) * g + b } "
    "pass=forward cols=4096 x=bf16",
    "norm limited(x[M,N], g[N], b[N], t[N]) -> y[M,N] { y = max(x * rsqrt(row_mean(x * x) + eps) * g + b, t) } "
    "cols=4096 x=bf16",
};

constexpr const char* every_function =
    "norm all(x[M,N], z[M,N]) -> y[M,N] { a = exp(x) + exp2(z) + log(z) + sigmoid(x) + tanh(z) + softplus(x) + "
    "log1p(round(z)); b = "
    "gelu(a) * "
    "gelu_tanh(z) + erf(x) + min(x, z) - max(a, z); y = b * rsqrt(row_mean(b * b) + eps) + sqrt(abs(z)) * compare(x, "
    "z) "
    "+ like(row_mean(z), z) } cols=2048 x=bf16";

/// Specs whose number of rows changes the schedule, and rows that are wider or odder than those above.
constexpr const char* specs_with_rows[] = {
    "layernorm cols=16385 x=f32 out=dx",
    "layernorm pass=forward cols=16384 x=f64 gamma=f64",
    "layernorm pass=forward rows=2 cols=13568 x=bf16 residual=bf16",
    "layernorm rows=79 cols=10815 x=bf16 out=dx",
    "layernorm slices=8 rows=1 cols=14873 x=f16 per_slice=gamma,beta gamma_offset=1",
    "rmsnorm pass=forward cols=262144 x=bf16",
    "layernorm pass=forward rows=179 cols=8512 x=bf16",
    "layernorm pass=forward slices=32 rows=6 cols=8896 x=bf16 per_slice=gamma,beta gamma_offset=1",
    "layernorm pass=forward rows=45 cols=640 x=bf16",
    "layernorm rows=40486 cols=448 out=dx",
    "layernorm pass=forward slices=16 rows=36 cols=64 x=f16 per_slice=gamma,beta gamma_offset=1",
    "layernorm pass=forward rows=250965 cols=1216 x=bf16",
    "layernorm pass=forward rows=13 cols=832 x=bf16 residual=bf16",
    "layernorm pass=forward slices=8 rows=1 cols=1792 x=bf16 per_slice=gamma,beta gamma_offset=1",
    "rmsnorm pass=forward rows=1482 cols=12619 x=f16",
    "rmsnorm pass=forward rows=6 cols=6656 residual=f32",
    "layernorm pass=forward rows=179 cols=8512 x=bf16",
    "layernorm rows=1 cols=8192 x=bf16",
    "layernorm rows=2048 cols=512 x=bf16",
    "layernorm rows=4096 cols=2048 x=f16",
    "layernorm rows=8192 cols=768 x=bf16",
    "layernorm rows=32768 cols=1152 x=bf16",
    "layernorm rows=32768 cols=2304 x=bf16 gamma=f32",
    "layernorm rows=4096 cols=4608 x=f16",
    "layernorm rows=4096 cols=8192 x=f16",
    "layernorm rows=4096 cols=12800 x=f16",
    "layernorm rows=32768 cols=16384 x=bf16 gamma=f32",
    "layernorm rows=16384 cols=16384 x=f32",
    "layernorm rows=32768 cols=32768 x=bf16",
    "layernorm rows=32768 cols=65536 x=bf16 gamma=f32",
    "layernorm rows=4096 cols=131072 x=bf16",
    "layernorm rows=4096 cols=262144 x=bf16",
    "layernorm rows=500000 cols=96 x=f16",
    "layernorm rows=500000 cols=160 x=bf16",
    "rmsnorm rows=10000 cols=135 x=bf16",
    "layernorm rows=500000 cols=320 x=bf16",
    "layernorm rows=500000 cols=332 x=f16 gamma=f32",
    "layernorm rows=100000 cols=486 x=bf16",
    "layernorm rows=100000 cols=509 x=bf16",
    "layernorm rows=20000 cols=378",
    "layernorm rows=3000 cols=690 x=bf16",
    "layernorm rows=280 cols=2304 x=f16",
    "layernorm rows=8 cols=2205 x=f16",
    "layernorm rows=20000 cols=4100 x=bf16",
    "rmsnorm rows=60 cols=9999 x=bf16",
    "layernorm rows=300 cols=12289 x=bf16",
    "layernorm rows=5000 cols=15001 x=bf16",
    "layernorm rows=139 cols=22697 x=f16",
    "layernorm rows=29 cols=36800 x=bf16",
    "layernorm rows=1 cols=53248 x=bf16",
};

/// True if this machine has NVRTC. Otherwise prints so, once.
bool has_compiler() {
    static const Status status = cuda_compiler().status();
    static const bool said = [] {
        if (!status.ok()) MESSAGE("skipped: ", status.message());
        return true;
    }();
    return said && status.ok();
}

bool knows(int sm) {
    const auto compiler = *cuda_compiler();
    return std::ranges::find(compiler.sms, sm) != compiler.sms.end();
}

backend::cuda::Compiled compiled(const Spec& spec, const Schedule& schedule, const Target& target) {
    const auto plan = plan::make(spec, schedule, target);
    REQUIRE_MESSAGE(plan.ok(), plan.status().message());
    auto result = backend::cuda::compile_source(backend::cuda::print_source(*plan), target.cuda.sm);
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    return *std::move(result);
}

int count(const std::string& text, std::string_view part) {
    int found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
}

/// Returns how many bytes of local memory a kernel may have. From sm_100 on, NVVM's output differs from process to
/// process (with the address layout), and ptxas then sometimes spills four words of a kernel that fits otherwise, or
/// six with NVRTC 13.2. A row that no longer fits in the registers would take hundreds of bytes.
int tolerated_bytes(int sm) { return sm >= 100 ? 24 : 0; }

/// Checks ptxas's report for each kernel: none may spill or put arrays into local memory.
void check_no_local_memory(const std::string& log, int sm) {
    CAPTURE(log);
    constexpr std::string_view report = " bytes stack frame";
    int kernels = 0;
    for (size_t end = log.find(report); end != log.npos; end = log.find(report, end + 1), ++kernels) {
        const size_t number = log.find_last_not_of("0123456789", end - 1) + 1;
        CHECK(std::stoi(log.substr(number, end - number)) <= tolerated_bytes(sm));
    }
    CHECK(kernels > 0);
    CHECK(kernels == count(log, "Compiling entry function"));
}

/// Returns all texts, or a sample if NORMJIT_TEST_ROUNDS limits the test.
std::vector<std::string> sample(std::span<const char* const> texts) {
    std::vector<std::string> left(texts.begin(), texts.end());
    test::Random random(test::seed());
    while (static_cast<int64_t>(left.size()) > test::rounds(static_cast<int64_t>(texts.size())))
        left.erase(left.begin() + random.between(0, static_cast<int64_t>(left.size()) - 1));
    return left;
}

void check_architecture(int sm, std::span<const char* const> texts = specs) {
    if (!has_compiler() || !knows(sm)) return;
    const Target target = *parse_target("sm_" + std::to_string(sm));
    for (const std::string& text : sample(texts)) {
        CAPTURE(text);
        const Spec spec = *parse_spec(text);
        const auto result = compiled(spec, heuristic(spec, target), target);
        CHECK(result.format == CodeFormat::cubin);
        check_no_local_memory(result.log, sm);
    }
}

}  // namespace

TEST_CASE("sm_80") { check_architecture(80); }
TEST_CASE("sm_86") { check_architecture(86); }
TEST_CASE("sm_89") { check_architecture(89); }
TEST_CASE("sm_90") { check_architecture(90); }
TEST_CASE("sm_100") { check_architecture(100); }
TEST_CASE("sm_120") { check_architecture(120); }
TEST_CASE("sm_80, formulas") { check_architecture(80, specs_of_formulas); }
TEST_CASE("sm_90, formulas") { check_architecture(90, specs_of_formulas); }

// The unaligned path of the last formula spills four words.
TEST_CASE("sm_80, crowded formulas") { check_architecture(80, std::span(specs_of_crowded_formulas).first<4>()); }
TEST_CASE("sm_90, crowded formulas") { check_architecture(90, specs_of_crowded_formulas); }

TEST_CASE("every function compiles") {
    for (const int sm : architectures) {
        if (!has_compiler() || !knows(sm)) continue;
        const Target target = *parse_target("sm_" + std::to_string(sm));
        const Spec spec = *parse_spec(every_function);
        CHECK(compiled(spec, heuristic(spec, target), target).format == CodeFormat::cubin);
    }
}

TEST_CASE("sm_80, numbers of rows") { check_architecture(80, specs_with_rows); }
TEST_CASE("sm_90, numbers of rows") { check_architecture(90, specs_with_rows); }
TEST_CASE("sm_120, numbers of rows") { check_architecture(120, specs_with_rows); }

TEST_CASE("random specs compile, with the heuristic's schedule and with any legal one") {
    if (!has_compiler()) return;
    test::Random random(test::seed());
    const int64_t rounds = test::rounds(20);
    for (int64_t i = 0; i < rounds; ++i) {
        const Spec spec = test::random_spec(random);
        const Target target = *parse_target("sm_" + std::to_string(random.pick(architectures)));
        if (!knows(target.cuda.sm)) continue;
        Schedule schedule = heuristic(spec, target);
        for (int draw = 0; draw < 200 && i % 2 == 1; ++draw) {
            const Schedule other = test::random_cuda_schedule(random);
            if (!legality(spec, other, target).ok()) continue;
            schedule = other;
            break;
        }
        CAPTURE(to_text(spec));
        CAPTURE(to_text(schedule));
        CAPTURE(to_text(target));
        const auto result = compiled(spec, schedule, target);
        if (i % 2 == 0) check_no_local_memory(result.log, target.cuda.sm);
    }
}

TEST_CASE("a GPU newer than NVRTC gets PTX") {
    if (!has_compiler()) return;
    const Spec spec = *parse_spec("rmsnorm cols=64 x=bf16");
    const Target target = *parse_target("sm_999");
    const auto artifact = compile(spec, heuristic(spec, target), target);
    REQUIRE_MESSAGE(artifact.ok(), artifact.status().message());
    CHECK(artifact->format == CodeFormat::ptx);
    CHECK(std::string(artifact->code.begin(), artifact->code.end()).find(".target sm_") != std::string::npos);
    CHECK(*parse_artifact(serialise(*artifact)) == *artifact);
}

TEST_CASE("a module has the kernels of both paths and one final reduce") {
    if (!has_compiler()) return;
    const Spec spec = *parse_spec("rmsnorm cols=64 x=bf16");
    const Target target = *parse_target("sm_90");
    const auto artifact = compile(spec, heuristic(spec, target), target);
    REQUIRE_MESSAGE(artifact.ok(), artifact.status().message());
    REQUIRE(artifact->cuda_paths.size() == 2);
    CHECK(artifact->cuda_paths[0].launches[0].entry == "normjit_rmsnorm_backward_bf16_64_rows");
    CHECK(artifact->cuda_paths[1].launches[0].entry == "normjit_rmsnorm_backward_bf16_64_rows_unaligned");
    CHECK(count(compiled(spec, heuristic(spec, target), target).log, "Compiling entry function") == 3);
}

TEST_CASE("kernels of invariant specs follow the formula, product by product") {
    if (!has_compiler()) return;
    const Target target = *parse_target("sm_90");
    for (const char* line : {"layernorm slices=any cols=28 dresidual=f32 out=dx,dresidual_in,dgamma,dbeta "
                             "per_slice=gamma,beta source=xhat",
                             "rmsnorm cols=4096 x=bf16"}) {
        for (const bool invariant : {false, true}) {
            const Spec spec = *parse_spec(std::string(line) + (invariant ? " invariant=1" : ""));
            const auto ptx = emit_stage(spec, heuristic(spec, target), target, "ptx");
            REQUIRE_MESSAGE(ptx.ok(), ptx.status().message());
            CHECK((count(*ptx, "fma.rn.f32") == 0) == invariant);
        }
    }
}

TEST_CASE("errors of NVRTC show its log and the numbered source") {
    if (!has_compiler()) return;
    const auto result = backend::cuda::compile_source("int a;\nint b = c;\n", 90);
    REQUIRE(!result.ok());
    CHECK(result.status().code() == Code::failed);
    CHECK(result.status().message().find("\"c\" is undefined") != std::string::npos);
    CHECK(result.status().message().find("   2  int b = c;") != std::string::npos);
}

}  // namespace normjit
