// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include "random_spec.h"

#include "normjit/compile.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;

namespace {

const Target four_cores = *parse_target("x86-64-avx512 cores=4");

plan::Plan plan_of(const char* spec) {
    const Spec parsed = *parse_spec(spec);
    return *plan::make(parsed, heuristic(parsed, four_cores), four_cores);
}

}  // namespace

TEST_CASE("a sweep for each chain of row means, and one more") {
    CHECK(plan_of("layernorm cols=64").sweeps.size() == 2);
    CHECK(plan_of("layernorm cols=64 stats=recompute").sweeps.size() == 3);
    CHECK(plan_of("rmsnorm cols=64 stats=recompute").sweeps.size() == 2);
    CHECK(plan_of("rmsnorm cols=64 out=dgamma").sweeps.size() == 1);
}

TEST_CASE("the workspace has padded partials and a row group's cached columns") {
    const plan::Plan plan = plan_of("layernorm cols=1000 x=bf16 gamma=f32");
    CHECK(plan.geometry.column_sums == 2);
    CHECK(plan.geometry.partial_cols == 1024);
    // The partials of groups and segments, and gamma, which is cached in f32.
    CHECK(plan.geometry.minimum_workspace(10) == 5 * 1024 * 4);
    CHECK(plan.geometry.preferred_workspace(10) == plan.geometry.row_groups * 5 * 1024 * 4);
    CHECK(plan_of("layernorm cols=1000 out=dx").geometry.minimum_workspace(10) == 0);
}

TEST_CASE("a forward has no partials, no workspace and no final reduce") {
    const plan::Plan plan = plan_of("layernorm pass=forward rows=4096 cols=1000 x=bf16 gamma=f32 out=y,mean,rstd");
    CHECK(plan.sweeps.size() == 3);
    CHECK(plan.epilogue.stores.empty());
    CHECK(plan.geometry.column_sums == 0);
    CHECK(plan.geometry.preferred_workspace(4096) == 0);
    const Target gpu = *parse_target("sm_90 sms=132");
    const Spec spec = *parse_spec("rmsnorm pass=forward cols=4096 x=bf16 residual=bf16");
    const plan::Plan on_gpu = *plan::make(spec, heuristic(spec, gpu), gpu);
    CHECK(on_gpu.geometry.preferred_workspace(4096) == 0);
    for (const plan::PlannedPath& planned : on_gpu.cuda().paths) CHECK(planned.path.launches.size() == 1);
}

TEST_CASE("parts of columns end where strips and steps do") {
    const Schedule schedule = *parse_schedule("cpu row_block=5 strip=2 unroll=3 column_ranges=3 split_rows=9");
    const Geometry g = plan::make(*parse_spec("layernorm cols=5000 gamma=f32"), schedule, four_cores)->geometry;
    CHECK(g.cpu.range_cols == 1728);  // a third of the columns, rounded up to a multiple of 6 times 128 bytes
    CHECK(g.cpu.column_ranges == 3);
    CHECK(g.cpu.sweeps == 2);
    CHECK(g.cpu.block_rows == 5);
    CHECK(g.cpu.sums_bytes == 2 * 3 * 64);  // two means, three ranges, and one register of rows
    CHECK(g.preferred_workspace(9) == g.group_bytes + 2 * g.cpu.sums_bytes);
    CHECK(g.is_split(9, g.preferred_workspace(9)));
    CHECK(!g.is_split(9, g.preferred_workspace(9) - 1));
    CHECK(!g.is_split(10, g.preferred_workspace(10)));
    CHECK(!g.is_split(0, g.preferred_workspace(0)));
}

TEST_CASE("thread groups have partials, row sums and a job of their own") {
    const Schedule schedule = *parse_schedule("cpu row_block=5 column_ranges=3 thread_groups=4 split_rows=90");
    const Geometry g = plan::make(*parse_spec("layernorm cols=5000 gamma=f32"), schedule, four_cores)->geometry;
    CHECK(g.cpu.thread_group_bytes() ==
          2 * g.cpu.sums_bytes + (CpuGeometry::job_head_lines + 3) * CpuGeometry::job_line_bytes);
    CHECK(g.preferred_workspace(90) == 4 * (g.group_bytes + g.cpu.thread_group_bytes()));
    CHECK(g.cpu.thread_groups_of(90) == 4);
    CHECK(g.cpu.thread_groups_of(15) == 3);  // one block for each
    CHECK(g.cpu.thread_groups_of(4) == 1);
}

TEST_CASE("every value that a sweep reads is computed before") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(500); ++i) {
        const Spec spec = test::random_spec(random);
        CAPTURE(to_text(spec));
        const auto made = plan::make(spec, heuristic(spec, four_cores), four_cores);
        REQUIRE_MESSAGE(made.ok(), made.status().message());
        const plan::Plan& plan = *made;
        std::set<ir::ValueId> rows;  // row values that are known so far
        const auto check = [&](ir::ValueId id, const std::set<ir::ValueId>& known) {
            for (const ir::ValueId operand : plan.function[id].operands) {
                if (operand == ir::no_value || plan.function[operand].op == ir::Op::constant) continue;
                REQUIRE((known.contains(operand) || rows.contains(operand)));
            }
        };
        for (const plan::Sweep& sweep : plan.sweeps) {
            std::set<ir::ValueId> known;
            if (sweep.is_last()) known.insert(plan.cpu().cached_elements.begin(), plan.cpu().cached_elements.end());
            for (const auto* ids : {&sweep.row_values, &sweep.column_values, &sweep.elements}) {
                for (const ir::ValueId id : *ids) {
                    check(id, known);
                    (ids == &sweep.row_values ? rows : known).insert(id);
                }
            }
            for (const ir::ValueId id : sweep.row_reductions) check(id, known);
            for (const ir::ValueId id : sweep.partials) check(id, known);
            for (const ir::Output& output : sweep.stores) REQUIRE(known.contains(output.value));
            rows.insert(sweep.row_reductions.begin(), sweep.row_reductions.end());
        }
    }
}

TEST_CASE("the heuristic's schedule is legal for every spec") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(500); ++i) {
        const Spec spec = test::random_spec(random);
        Target target = four_cores;
        target.cpu.cores = static_cast<int>(random.between(1, 128));
        target.cpu.avx512_bf16 = random.chance(50);
        CAPTURE(to_text(spec));
        const Status status = legality(spec, heuristic(spec, target), target);
        REQUIRE_MESSAGE(status.ok(), status.message());
    }
}

TEST_CASE("every legal schedule compiles, with equal results") {
    test::Random random(test::seed());
    int legal = 0;
    for (int64_t i = 0; i < test::rounds(300); ++i) {
        const Spec spec = test::random_spec(random);
        Schedule schedule = test::random_schedule(random);
        schedule.row_groups = std::min<int64_t>(schedule.row_groups, 64);
        CAPTURE(to_text(spec));
        CAPTURE(to_text(schedule));
        const auto artifact = compile(spec, schedule, four_cores);
        const Status status = legality(spec, schedule, four_cores);
        REQUIRE(artifact.ok() == status.ok());
        if (!status.ok()) continue;
        ++legal;
        REQUIRE(artifact->code == compile(spec, schedule, four_cores)->code);
    }
    CHECK(legal > 0);
}

TEST_CASE("groups of columns are taken one by one") {
    const Spec spec =
        *parse_spec("norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 16) - row_mean(x) } pass=forward cols=64 x=bf16");
    const auto refusal = [&](const char* schedule) {
        return legality(spec, *parse_schedule(schedule), four_cores).message();
    };
    CHECK(refusal("cpu strip=1 unroll=4 row_block=8 cache_columns=1 cache_elements=1 prefetch=1") == "");
    CHECK(refusal("cpu strip=2") == "schedule: strip=2: group_max needs 1");
    CHECK(refusal("cpu strip=1 split_rows=3") == "schedule: split_rows=3: group_max needs 0");
    CHECK(refusal("cpu strip=1 overlap=1") == "schedule: overlap=1: group_max needs 0");
    CHECK(refusal(to_text(heuristic(spec, four_cores)).c_str()) == "");
}

TEST_CASE("a refused schedule says which number is wrong and what is allowed") {
    const Spec spec = *parse_spec("layernorm cols=64 x=bf16");
    const auto refusal = [&](const char* schedule) {
        return legality(spec, *parse_schedule(schedule), four_cores).message();
    };
    CHECK(refusal("cpu row_block=65") == "schedule: row_block=65: must be 1 to 64");
    CHECK(refusal("cpu row_groups=0") == "schedule: row_groups=0: must be 1 to 1048576");
    CHECK(refusal("cpu prefetch=4") == "schedule: prefetch=4: must be 0 to 3");
    CHECK(refusal("cpu cache_elements=1 split_rows=1") ==
          "schedule: cache_elements=1: caches whole rows; split_rows must be 0");
    CHECK(refusal("cpu overlap=2") == "schedule: overlap=2: must be 0 to 1");
    CHECK(refusal("cpu overlap=1 cache_elements=1") ==
          "schedule: overlap=1: elements are cached for one block of rows only; cache_elements must be 0");
    CHECK(refusal("cpu overlap=1 prefetch=2") ==
          "schedule: overlap=1: the next block is read in any case; prefetch must be 0 or 3");
    CHECK(legality(*parse_spec("layernorm cols=64 stats=recompute"), *parse_schedule("cpu overlap=1"), four_cores)
              .message() == "schedule: overlap=1: needs a spec with two sweeps over the rows; this one has 3");
    CHECK(refusal("cpu thread_groups=0") == "schedule: thread_groups=0: must be 1 to 1024");
    CHECK(refusal("cpu cache_elements=1 strip=1 row_block=33") ==
          "schedule: cache_elements=1: 33 rows then take 16896 bytes of the stack; at most 16384 are allowed");
    CHECK(refusal("cpu strip=8") == "schedule: strip=8: this spec then needs 56 vector registers; there are 30");
}

TEST_CASE("the registers that the end of a stage of row sums takes are counted") {
    const auto refusal = [](int cols, int unroll) {
        const std::string spec = fmt::format(
            "norm sums(x[M,N], z[M,N], w[M,N], v[M,N], s[M]) -> a[M], b[M], c[M], d[M] {{ a = row_mean(x * s); "
            "b = row_mean(z); c = row_mean(w); d = row_mean(v) }} pass=forward cols={}",
            cols);
        const Schedule schedule = *parse_schedule(fmt::format("cpu strip=1 unroll={}", unroll));
        if (const Status legal = legality(*parse_spec(spec), schedule, four_cores); !legal.ok()) return legal.message();
        return compile(*parse_spec(spec), schedule, four_cores).status().message();
    };
    CHECK(refusal(1000, 7) == "");  // rows without stages
    CHECK(refusal(1'000'000, 6) == "");
    CHECK(refusal(1'000'000, 7) == "schedule: unroll=7: this spec then needs 31 vector registers; there are 30");
}
