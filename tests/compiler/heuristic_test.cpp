// SPDX-License-Identifier: Apache-2.0
#include "random_spec.h"
#include "schedule/cuda_cost.h"
#include "schedule/heuristics.h"

#include "normjit/kernel_spec.h"
#include "normjit/points.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace normjit::schedule {

TEST_CASE("costs are the sums of the leaves that the numbers lead to") {
    const std::string_view names[] = {"rows", "threads"};
    const auto costs =
        CostTrees::parse("# made by hand\nrows threads\n1.5\n2 8\n0:0 100000 1:1 2000000 3000000\n25000\n", names);
    REQUIRE(costs.ok());
    const auto sum = [&](double rows, double threads) { return costs->sum(std::array{rows, threads}); };
    CHECK(sum(1.5, 100) == 1.25);
    CHECK(sum(1.6, 8) == 20.25);
    CHECK(sum(1.6, 8.1) == 30.25);
}

TEST_CASE("a text that holds no costs is refused") {
    const std::string_view names[] = {"rows", "threads"};
    const auto refusal = [&](std::string_view text) {
        return std::string(CostTrees::parse(text, names).status().message());
    };
    CHECK(refusal("") == "costs: there is no tree");
    CHECK(refusal("rows threads\n1\n2 8\n") == "costs: there is no tree");
    CHECK(refusal("threads rows\n1\n") == "costs: the numbers have other names");
    for (const char* line : {"1 x", "2 1", "1 1", "1:2"}) {
        CAPTURE(line);
        CHECK(
            refusal("rows threads\n" + std::string(line)).starts_with("costs: limits must be numbers that increase: "));
    }
    for (const char* line : {"1:1", "1:1 2", "1:1 2 3 4", "2:0 2 3", "-1:1 2 3", "1:x 2 3", "1: 2 3", "1  2", "one",
                             "1:1:2 3 4", "1:2 2 3", "1:-1 2 3", "1:1 2 3 "}) {
        CAPTURE(line);
        CHECK(refusal("rows threads\n1\n2 8\n" + std::string(line)).starts_with("costs: a line is not a tree: "));
    }
}

TEST_CASE("a GPU's heuristic takes the point of the problem, or the cheapest of the nearest ones") {
    test::Random random(test::seed());
    int64_t compared = 0;
    for (int64_t i = 0; i < test::rounds(300); ++i) {
        const Target target = test::random_target(random);
        if (!target.is_cuda()) continue;
        const Spec spec = kernel_spec(test::random_spec(random, {.max_cols = random.chance(50) ? 5000 : 200'000}));
        if (spec.invariant) continue;
        const auto all = cuda_schedules_of_points(spec, target, PointSet::shipped(), compared_points);
        if (all.size() < 2) continue;
        std::vector<std::string> reasons;
        const Schedule chosen = heuristic(spec, target, PointSet::shipped(), &reasons);
        const auto features = cuda_features(spec, OperandList(spec), target);
        const auto cost = [&](const Schedule& each) { return cuda_cost(features, target.cuda, each); };
        CAPTURE(to_text(spec));
        CHECK(std::ranges::count(all, chosen) == 1);
        if (reasons.size() == 1) {
            CHECK(chosen == all.front());
            continue;
        }
        ++compared;
        CHECK(cost(chosen) == cost(*std::ranges::min_element(all, {}, cost)));
    }
    CHECK(compared > 0);
}

TEST_CASE("without points, rows are held by the fewest blocks that can") {
    const auto chosen = [](const char* spec, const char* target) {
        return std::get<CudaSchedule>(heuristic(*parse_spec(spec), *parse_target(target), PointSet()).device);
    };
    const char *h100 = "sm_90 sms=132 shared=232448 l2=52428800", *a100 = "sm_80 sms=108 shared=166912 l2=41943040";
    CHECK(chosen("layernorm rows=4096 cols=1024 x=bf16", h100).cluster == 1);
    CHECK(chosen("layernorm rows=4096 cols=131072 x=bf16", h100).cluster > 1);
    CHECK(chosen("layernorm rows=4096 cols=1024 x=bf16", a100).form == CudaForm::rows);
    CHECK(chosen("layernorm rows=4096 cols=1000000 x=f32", a100).form == CudaForm::two_pass);
}

TEST_CASE("the heuristic reports what decided") {
    const auto reasons = [](const char* spec, const char* target) {
        return heuristic_reasons(*parse_spec(spec), *parse_target(target));
    };
    const auto gpu = reasons("layernorm rows=8191 cols=4096 x=f16", "sm_90 sms=132 l2=57000000");
    REQUIRE(gpu.size() == 2);
    CHECK(gpu[0].starts_with("point of "));
    CHECK(gpu[1].starts_with("the best of 16 schedules of points: predicted to take 1."));
    const char* cpu = "x86-64-avx512 cores=16 l1=49152 l2=2097152 l3=314572800";
    const auto teams = reasons("layernorm rows=512 cols=65536", cpu);
    REQUIRE(teams.size() == 3);
    CHECK(teams[0].starts_with("row_block, prefetch, cache_columns: a row or two fit a core's L2: 512 KiB to read"));
    CHECK(teams[2] == "thread_groups, row_block: the L2 of 2 threads hold a row");
}

TEST_CASE("threads share few rows, and take many rows whole") {
    const auto chosen = [](const std::string& spec, const std::string& target) {
        return std::get<CpuSchedule>(heuristic(*parse_spec(spec), *parse_target(target)).device);
    };
    const std::string xeon = "x86-64-avx512 bf16=1 cores=16 l2=2097152";
    for (const std::string& target : {std::string("x86-64-avx512 cores=2 tune=zen4"), xeon}) {
        for (const std::string problem :
             {"layernorm cols=24000 x=f32", "layernorm cols=40000 x=f16", "layernorm cols=40000 x=bf16",
              "rmsnorm cols=24000 x=bf16 gamma=f32", "layernorm pass=forward cols=40000 x=bf16"}) {
            CAPTURE(problem);
            CAPTURE(target);
            const CpuSchedule few = chosen(problem + " rows=3", target);
            CHECK(few.split_rows >= 1);
            CHECK(few.column_ranges > 1);
            CHECK(chosen(problem + " rows=512", target).split_rows == 0);
        }
    }
    CHECK(chosen("layernorm rows=100 cols=12000 x=bf16", xeon).split_rows == 0);  // it would be split if nobody waited
    const CpuSchedule one_block = chosen("layernorm rows=20 cols=12000 x=bf16", xeon);
    CHECK(one_block.row_block == 20);
    const CpuSchedule two_blocks = chosen("layernorm rows=40 cols=12000 x=bf16", xeon);
    CHECK(two_blocks.row_block == 20);
    CHECK(two_blocks.overlap == 0);
    CHECK(two_blocks.prefetch == 1);
}

TEST_CASE("forward passes have more row groups, which cost them no partials") {
    const auto target = parse_target("x86-64-avx512 cores=16 l2=2097152");
    const auto groups = [&](const std::string& spec) { return heuristic(*parse_spec(spec), *target).row_groups; };
    CHECK(groups("rmsnorm rows=600 cols=2816 x=bf16") == 32);
    CHECK(groups("rmsnorm pass=forward rows=600 cols=2816 x=bf16") == 128);
    CHECK(groups("rmsnorm pass=forward rows=1 cols=2816 x=bf16") == 1);
    CHECK(groups("rmsnorm pass=forward rows=0 cols=2816 x=bf16") == 1);
}

TEST_CASE("a Zen 4 takes few rows per block with 4K aliasing between rows") {
    const auto rows = [](const std::string& spec, const std::string& tune) {
        const auto target = parse_target("x86-64-avx512 cores=1 tune=" + tune);
        return std::get<CpuSchedule>(heuristic(*parse_spec("layernorm " + spec), *target).device).row_block;
    };
    for (const char* pages :
         {"rows=64 cols=1024", "rows=64 cols=1040", "rows=64 cols=2048 x=bf16", "rows=8 cols=4096"}) {
        CAPTURE(pages);
        CHECK(rows(pages, "generic") > 2);
        CHECK(rows(pages, "zen4") == 2);
    }
    for (const char* others :
         {"rows=64 cols=1000", "rows=64 cols=1024 x=bf16", "rows=900 cols=16", "rows=4 cols=4096"}) {
        CAPTURE(others);
        CHECK(rows(others, "zen4") == rows(others, "generic"));
    }
}

TEST_CASE("rows that fill no lines are staged one at a time if many cores read much and two rows do not fit") {
    const auto chosen = [](const std::string& spec, const std::string& cores = "16") {
        const auto target = parse_target("x86-64-avx512 l1=49152 l2=2097152 l3=314572800 cores=" + cores);
        return std::get<CpuSchedule>(heuristic(*parse_spec("layernorm " + spec), *target).device);
    };
    const CpuSchedule single = chosen("rows=3000 cols=7001");
    CHECK(single.row_block == 1);
    CHECK(single.overlap == 1);
    CHECK(chosen("rows=3000 cols=4001").row_block == 2);  // two fit
    for (const char* others : {"rows=3000 cols=7008", "rows=1000 cols=7001", "rows=3000 cols=12001", "cols=7001"}) {
        CAPTURE(others);
        CHECK(chosen(others).row_block > 1);
    }
    CHECK(chosen("rows=3000 cols=7001", "4").row_block > 1);
}

TEST_CASE("results of functions are kept for the last sweep where the stack holds a row of them") {
    const auto caches = [](const std::string& spec) {
        const auto target = parse_target("x86-64-avx512 cores=2");
        return std::get<CpuSchedule>(heuristic(*parse_spec(spec), *target).device).cache_elements == 1;
    };
    CHECK(caches("softmax cols=1024 pass=forward"));
    CHECK(caches("rmsnorm_of_gated cols=3000 x=bf16"));
    CHECK_FALSE(caches("softmax cols=5000 rows=100"));
    CHECK_FALSE(caches("gated_rmsnorm cols=1024 pass=forward"));  // only the last sweep has its function
    CHECK_FALSE(caches("rmsnorm cols=1024 rows=2048 x=bf16"));
}

TEST_CASE("a schedule for some rows serves all") {
    const Target target = *parse_target("sm_90 sms=132 shared=232448 l2=62914560");
    for (const char* text : {"layernorm rows=7 cols=4096 x=bf16", "rmsnorm rows=100000 cols=256 x=f16",
                             "rmsnorm slices=4 rows=2 cols=128 x=bf16 per_slice=gamma"}) {
        const Spec spec = *parse_spec(text);
        Spec open = spec;
        open.rows.reset();
        const Schedule found = heuristic(spec, target), opened = for_open_rows(found, spec, open, target);
        CHECK(opened.device == found.device);
        CHECK(opened.row_groups >= std::max<int64_t>(found.row_groups, 66));
        CHECK(legality(open, opened, target).ok());
    }
}

}  // namespace normjit::schedule
