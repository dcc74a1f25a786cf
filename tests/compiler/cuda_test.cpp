// SPDX-License-Identifier: Apache-2.0
#include "plan/cuda.h"

#include "artifact/cuda_abi.h"
#include "backend/cuda/source.h"
#include "random_spec.h"
#include "support/embedded.h"

#include "normjit/compile.h"
#include "normjit/kernel_name.h"

#include <algorithm>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace normjit {

namespace {

constexpr const char* all_targets[] = {
    "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "sm_90 sms=1 shared=49152"};

/// Returns why this schedule is refused; empty if it is accepted.
std::string reason(const char* spec, const char* schedule, const char* target = "sm_90") {
    return legality(*parse_spec(spec), *parse_schedule(schedule), *parse_target(target)).message();
}

/// With this much L2, no GPU's points are near, so that the tables choose.
Schedule chosen(const char* spec, const char* target = "sm_90 l2=57000000") {
    return heuristic(*parse_spec(spec), *parse_target(target));
}

plan::Plan plan_of(const Spec& spec, const Target& target) {
    return *plan::make(spec, heuristic(spec, target), target);
}

}  // namespace

TEST_CASE("a refused CUDA schedule gets a reason") {
    const char* spec = "layernorm cols=1000 x=bf16";
    CHECK(reason(spec, "cuda threads_per_row=128 vector_width=8") == "");
    CHECK(reason(spec, "cpu").starts_with("schedule: is of kind cpu; target 'sm_90 "));
    CHECK(reason(spec, "cuda", "x86-64-avx512").starts_with("schedule: is of kind cuda; target 'x86-64-avx512 "));
    CHECK(reason(spec, "cuda threads_per_row=24") ==
          "schedule: threads_per_row=24: must be 1, 2, 4, 8, 16 or a multiple of 32");
    CHECK(reason(spec, "cuda threads_per_row=16 rows_per_block=1 vector_width=8") ==
          "schedule: threads_per_row=16 times rows_per_block=1: must be a multiple of 32, at most 1024");
    CHECK(reason(spec, "cuda threads_per_row=64 rows_per_block=16 vector_width=4") ==
          "schedule: rows_per_block=16: at most 15 with more than 32 threads_per_row");
    CHECK(reason(spec, "cuda vector_width=16") ==
          "schedule: vector_width=16: must divide cols=1000, or be 16 bytes of every matrix with staging=async");
    CHECK(reason(spec, "cuda vector_width=3") == "schedule: vector_width=3: must be a power of two");
    CHECK(reason(spec, "cuda cluster=3") == "schedule: cluster=3: must be a power of two");
    CHECK(reason(spec, "cuda threads_per_row=128 vector_width=8 cluster=2", "sm_89") ==
          "schedule: cluster=2: needs sm_90");
    CHECK(reason(spec, "cuda threads_per_row=128 vector_width=8 cluster=2 rows_per_block=2") ==
          "schedule: cluster=2: needs rows_per_block=1");
    CHECK(reason(spec, "cuda threads_per_row=128 vector_width=8 staging=bulk", "sm_80") ==
          "schedule: staging=bulk: needs sm_90");
    CHECK(reason(spec, "cuda threads_per_row=128 vector_width=4 staging=bulk") ==
          "schedule: staging=bulk: needs vectors with a multiple of 16 bytes; vector_width=4 has 8");
    CHECK(reason(spec, "cuda threads_per_row=128 vector_width=8 staging=bulk row_memory=shared pipeline_depth=1") ==
          "schedule: pipeline_depth=1: staging=bulk with row_memory=shared needs another stage for the next row");
    CHECK(reason(spec, "cuda threads_per_row=512 vector_width=1 staging=async") ==
          "schedule: staging=async: needs vectors of at least 4 bytes; vector_width=1 has 2");
    CHECK(reason(spec, "cuda threads_per_row=128 vector_width=8 row_memory=shared") ==
          "schedule: row_memory=shared: needs staging=async or staging=bulk");
    CHECK(reason("layernorm cols=1000 out=dx", "cuda threads_per_row=128 vector_width=4 pace=1") ==
          "schedule: pace=1: needs an output without rows, whose final reduce resets the counter");
    CHECK(reason("layernorm cols=1024", "cuda threads_per_row=128 vector_width=4 rows_per_team=2") ==
          "schedule: rows_per_team=2: must be 0 with an output without rows, for which there are only row_groups "
          "partials");
    CHECK(reason("layernorm cols=1024 out=dx", "cuda threads_per_row=128 vector_width=4 rows_per_team=2").empty());
    CHECK(reason("layernorm cols=1024 out=dx", "cuda form=two_pass threads_per_row=128 rows_per_team=2") ==
          "schedule: rows_per_team=2: form=two_pass has no teams");
    CHECK(reason("layernorm cols=1024", "cuda threads_per_row=128 vector_width=4 staging=async row_memory=global") ==
          "schedule: row_memory=global: needs staging=registers pipeline_depth=1");
    CHECK(reason(spec, "cuda form=two_pass threads_per_row=16 rows_per_block=2") ==
          "schedule: threads_per_row=16: form=two_pass needs whole warps");
    CHECK(reason(spec, "cuda form=two_pass staging=async") ==
          "schedule: form=two_pass needs staging=registers row_memory=registers column_memory=registers");
    CHECK(reason("layernorm cols=8192 x=bf16", "cuda threads_per_row=32 vector_width=8") ==
          "schedule: threads_per_row=32 cluster=1: 256 elements of a row per thread; at most 64");
    CHECK(
        reason("layernorm cols=8192 x=bf16", "cuda threads_per_row=512 vector_width=8 staging=bulk pipeline_depth=8") ==
        "schedule: 264512 bytes of shared memory; the target has 232448");
    CHECK(reason("layernorm cols=4096 x=bf16", "cuda threads_per_row=256 vector_width=8 blocks_per_sm=4")
              .find("registers") != std::string::npos);
    CHECK(reason("layernorm cols=64", "cuda threads_per_row=32 vector_width=2", "sm_75").find("needs sm_80 or newer") !=
          std::string::npos);
}

TEST_CASE("the heuristic takes the measured winners, and their like for any number of rows") {
    const char* h200 = "sm_90 sms=132 shared=232448 l2=62914560";
    const auto cuda = [&](const char* spec) { return std::get<CudaSchedule>(chosen(spec, h200).device); };
    CHECK(cuda("layernorm rows=32768 cols=4096 x=bf16").staging == CudaStaging::bulk);
    CHECK(cuda("layernorm rows=32768 cols=16384 x=bf16").cluster == 2);
    CHECK(cuda("layernorm cols=256 x=bf16").rows_per_block > 4);
    CHECK(cuda("layernorm cols=4096 x=bf16").rows_per_block == 1);
    CHECK(cuda("layernorm cols=131072 x=bf16").cluster >= 4);
    CHECK(cuda("layernorm cols=4000000 x=bf16").form == CudaForm::two_pass);
    CHECK(std::get<CudaSchedule>(chosen("layernorm cols=65536 x=bf16", "sm_80").device).form == CudaForm::two_pass);
}

TEST_CASE("the heuristic is legal for every spec on every target") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(3000);
    for (int64_t i = 0; i < count; ++i) {
        test::SpecLimits limits;
        limits.max_cols = random.pick({int64_t{100}, int64_t{5000}, int64_t{100000}, max_cols});
        const Spec spec = test::random_spec(random, limits);
        const Target target = *parse_target(random.pick(all_targets));
        const Schedule schedule = heuristic(spec, target);
        CAPTURE(to_text(spec));
        CAPTURE(to_text(target));
        CAPTURE(to_text(schedule));
        REQUIRE(legality(spec, schedule, target).message() == "");
        REQUIRE(*parse_schedule(to_text(schedule)) == schedule);
    }
}

TEST_CASE("groups of columns lie in lanes of one warp") {
    const auto spec = [](int64_t columns, int64_t cols, std::string_view type) {
        return fmt::format(
            "norm f(x[M,N]) -> y[M,N], g[M,N/{0}] {{ g = group_max(x, {0}); y = x - row_mean(x) / g }} "
            "pass=forward cols={1} x={2}",
            columns, cols, type);
    };
    const std::string usual = spec(128, 3200, "bf16");
    CHECK(reason(usual.c_str(), "cuda threads_per_row=224 vector_width=8") == "");
    CHECK(reason(usual.c_str(), "cuda threads_per_row=416 vector_width=2") ==
          "schedule: vector_width=2: groups of 128 columns need at least 4, so that a warp holds one");
    CHECK(reason(usual.c_str(), "cuda threads_per_row=8 rows_per_block=4 vector_width=8") ==
          "schedule: threads_per_row=8: groups of 128 columns need a multiple of 16 with vector_width=8");
    CHECK(reason(usual.c_str(), "cuda threads_per_row=128 cluster=2 vector_width=8") ==
          "schedule: cluster=2: groups of 128 columns would lie in two blocks");
    CHECK(plan_of(*parse_spec(usual), *parse_target("sm_90")).cuda().paths.size() == 1);
    for (const char* text : all_targets) {
        for (const char* type : {"f32", "bf16", "e4m3", "f64"}) {
            for (int64_t columns = 16; columns <= 256; columns *= 2) {
                for (const int64_t groups : {1, 2, 3, 25, 64, 1000, 20000}) {
                    const Spec grouped = *parse_spec(spec(columns, columns * groups, type));
                    const Target target = *parse_target(text);
                    CAPTURE(to_text(grouped));
                    CAPTURE(text);
                    REQUIRE(legality(grouped, heuristic(grouped, target), target).message() == "");
                }
            }
        }
    }
}

TEST_CASE("paths of a plan") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(1000);
    for (int64_t i = 0; i < count; ++i) {
        const Spec spec = test::random_spec(random);
        const Target target = *parse_target(random.pick(all_targets));
        const plan::Plan plan = plan_of(spec, target);
        CAPTURE(to_text(spec));
        REQUIRE(plan.operands.size() <= std::size(CudaArguments().operand));
        REQUIRE(!plan.operands.matrices().empty());
        REQUIRE(plan.operands.column_outputs().size() == plan.epilogue.stores.size());
        REQUIRE(plan.operands.scalar_outputs().size() == plan.epilogue.scalars.size());
        REQUIRE(plan.operands == OperandList(spec));
        const CudaPath& last = plan.cuda().paths.back().path;
        REQUIRE((last.vector_width == 1 || spec.invariant));
        REQUIRE((plan.cuda().paths.size() == 1 || !spec.invariant));
        for (const plan::PlannedPath& planned : plan.cuda().paths) {
            const auto& launches = planned.path.launches;
            REQUIRE(!launches.front().dependent);
            const bool has_final = !plan.operands.reductions().empty() && !plan.cuda().one_group;
            REQUIRE((launches.back().entry == kernel_name(spec, "final_reduce")) == has_final);
            REQUIRE((launches.front().grid == CudaGrid::one_group) == plan.cuda().one_group);
            REQUIRE(launches.size() <= 3);
        }
        REQUIRE(plan.geometry.groups(1 << 20, plan.geometry.preferred_workspace(1 << 20)) == plan.schedule.row_groups);
        REQUIRE(plan.geometry.groups(1 << 20, plan.geometry.minimum_workspace(1 << 20)) >= 1);
    }
}

TEST_CASE("with neighbours a thread has both columns of a pair, however the data is aligned") {
    const char* spec = "norm f(x[M,N]) -> y[M,N] { y = x * neighbour(x) } pass=forward cols=1010 x=bf16";
    CHECK(reason(spec, "cuda threads_per_row=256 vector_width=1") ==
          "schedule: vector_width=1: neighbour() needs an even one that divides cols=1010");
    CHECK(reason(spec, "cuda threads_per_row=128 rows_per_block=4 vector_width=8 staging=async") ==
          "schedule: vector_width=8: neighbour() needs an even one that divides cols=1010");
    CHECK(reason(spec, "cuda threads_per_row=256 vector_width=2") == "");
    for (const char* target : all_targets) {
        for (const int64_t cols : {2, 6, 128, 1010, 4096, 70002, 300000}) {
            for (const char* type : {"bf16", "f32", "f64", "e4m3"}) {
                for (const char* pass : {"forward", "backward", "forward invariant=1"}) {
                    const Spec each = *parse_spec(
                        fmt::format("qk_norm_rope_interleaved cols={} slices=4 x={} pass={}", cols, type, pass));
                    CAPTURE(to_text(each));
                    const plan::Plan plan = plan_of(each, *parse_target(target));
                    CHECK(legality(each, plan.schedule, plan.target).message() == "");
                    const int last = plan.cuda().paths.back().path.vector_width;
                    CHECK((last == 2 || (each.invariant && last % 2 == 0)));
                }
            }
        }
    }
}

TEST_CASE("rows that start anywhere in a vector") {
    const char* spec = "layernorm cols=1001 x=bf16";
    const std::string schedule = "cuda threads_per_row=128 rows_per_block=4 vector_width=8 staging=";
    const std::string width = "schedule: vector_width=8: must divide cols=1001, or be 16 bytes of every matrix ";
    CHECK(reason(spec, (schedule + "async").c_str()) == "");
    CHECK(reason(spec, (schedule + "registers").c_str()) == width + "with staging=async");
    CHECK(reason(spec, (schedule + "bulk").c_str()) == width + "with staging=async");
    CHECK(reason("layernorm cols=1001 x=bf16 dx=f32", (schedule + "async").c_str()) == width + "with staging=async");
    CHECK(reason("layernorm cols=1001 x=f32", "cuda threads_per_row=256 vector_width=4 staging=async") == "");
    CHECK(reason(spec, (schedule + "async column_memory=shared").c_str()) ==
          "schedule: column_memory=shared: needs rows_per_block=1 when vector_width=8 does not divide cols=1001");
    CHECK(plan::vectors_of_row(1000, 8) == 125);
    CHECK(plan::vectors_of_row(1001, 8) == 126);  // beginning with the last element of a vector: 1 + 124 * 8 + 8
    CHECK(plan::vectors_of_row(1002, 8) == 127);
    const Target target = *parse_target("sm_90 sms=132");
    for (const int64_t cols : {1001, 4097, 70001}) {
        const Spec odd = *parse_spec(fmt::format("layernorm cols={} x=bf16 rows=100000", cols));
        const Schedule chosen = heuristic(odd, target);
        const auto& cuda = std::get<CudaSchedule>(chosen.device);
        CHECK(cuda.vector_width == 8);
        CHECK(chosen.row_groups * cuda.rows_per_block % 8 == 0);
    }
}

TEST_CASE("outputs share sums over the rows, and the final reduce has blocks for each output") {
    const Spec spec = *parse_spec(
        "norm f(x[S,M,N]) -> a[S,N], b[N], c[N], d[N], m[] { a = col_sum(x) * col_sum(x * x); b = col_sum(x); c = b * "
        "2; d = b * 3; "
        "m = max_abs(x) } pass=forward slices=any cols=512 x=bf16");
    const plan::Plan plan = plan_of(spec, *parse_target("sm_90"));
    const plan::CudaPlan& cuda = plan.cuda();
    REQUIRE(cuda.sums.size() == 3);  // two sum over each slice, one over all rows
    CHECK(std::ranges::count_if(cuda.sums, &plan::ColumnSum::per_slice) == 2);
    CHECK(std::ranges::count(cuda.sums, -1, &plan::ColumnSum::output) == 3);  // no output is made from one sum alone
    const Geometry& geometry = plan.geometry;
    CHECK(geometry.column_sums == 4);
    const CudaLaunch& reduce = cuda.paths[0].path.launches.back();
    CHECK(reduce.grid_of(geometry, 100, {.row_groups = 8}).y == 5);
    CHECK(geometry.minimum_workspace({2, 50}) == 50 * geometry.group_bytes);
    CHECK(geometry.preferred_workspace({1, 1'000'000}) >= 1'000'000 * geometry.group_bytes);
}

TEST_CASE("the source names its spec and schedule, and knows no norm") {
    const Spec spec = *parse_spec("rmsnorm cols=512 x=f16 stats=recompute");
    const Target target = *parse_target("sm_90");
    const std::string source = *emit_stage(spec, heuristic(spec, target), target, "cuda");
    CHECK(source.starts_with("// " + to_text(spec) + "\n// " + to_text(heuristic(spec, target)) + "\n"));
    CHECK(source.find("norm", source.find("struct Formula")) > source.find("extern \"C\""));
    CHECK(source.find(" normjit_rmsnorm_backward_f16_512_rows_unaligned(") != source.npos);
    const Spec odd = *parse_spec("rmsnorm cols=513 x=bf16 dy=f32");
    CHECK(emit_stage(odd, heuristic(odd, target), target, "cuda")->find("_unaligned") == source.npos);
    CHECK(emit_stage(spec, heuristic(spec, *parse_target("x86-64-avx512")), *parse_target("x86-64-avx512"), "cuda")
              .status()
              .message()
              .starts_with("unknown stage 'cuda'; allowed: ir plan"));
}

TEST_CASE("the source has infinite numbers as their bits") {
    const Target target = *parse_target("sm_90");
    const auto source = [&](const std::string& type) {
        const std::string text = "norm f(x[M,N]) -> y[M,N] { y = max(x * 1e39, -inf) } pass=forward cols=8 x=" + type;
        return backend::cuda::print_source(plan_of(*parse_spec(text), target));
    };
    CHECK(source("f32").find("max(x_ * __int_as_float(0x7f800000), __int_as_float(0xff800000))") != std::string::npos);
    CHECK(source("f64").find("max(x_ * 1e+39, __longlong_as_double(0xfff0000000000000))") != std::string::npos);
}

TEST_CASE("the device code has as many counters as the runtime deals out") {
    const Spec spec = *parse_spec("layernorm cols=64");
    const Target target = *parse_target("sm_90");
    const std::string source = *emit_stage(spec, heuristic(spec, target), target, "cuda");
    CHECK(source.find(fmt::format("\n#define NORMJIT_PROGRESS_SLOTS {}\n", cuda_progress_slots)) != source.npos);
    std::string text;
    for (const embedded::Text& each : embedded::templates()) text += each.text;
    CHECK(text.find("progress_counters[NORMJIT_PROGRESS_SLOTS];") != text.npos);
}

TEST_CASE("formulas of many matrices have a path for data that is aligned only to its elements") {
    std::string inputs = "x[M,N]", sum = "x";
    for (int i = 2; i <= 14; ++i) {
        inputs += fmt::format(", a{}[M,N]", i);
        sum += fmt::format(" + a{0} * a{0}", i);
        for (const char* rest : {"cols=100 x=f32", "cols=3001 x=f64", "cols=40000 x=f64"}) {
            const auto spec = parse_spec(
                fmt::format("norm f({}) -> y[M,N] {{ v = {}; y = v * rsqrt(row_mean(v * v) + eps) }} pass=forward {}",
                            inputs, sum, rest));
            REQUIRE_MESSAGE(spec.ok(), spec.status().message());
            for (const char* text : {"sm_80", "sm_90"}) {
                const Target target = *parse_target(text);
                const Status status = legality(*spec, heuristic(*spec, target), target);
                CHECK_MESSAGE(status.ok(), status.message());
            }
        }
    }
}

}  // namespace normjit
