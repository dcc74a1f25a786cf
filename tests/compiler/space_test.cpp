// SPDX-License-Identifier: Apache-2.0
#include "normjit/space.h"

#include "random_spec.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

namespace normjit {

namespace {

const char* const targets[] = {"x86-64-avx512", "sm_80", "sm_90"};

Spec spec_of(std::string_view text) {
    const auto spec = parse_spec(text);
    REQUIRE(spec.status().message() == "");
    return *spec;
}

Target target_of(std::string_view text) { return *parse_target(text); }

/// The keys whose values differ between two schedules.
std::set<std::string> differing_keys(const Schedule& a, const Schedule& b) {
    const auto words = [](const Schedule& schedule) {
        std::set<std::string> all;
        const std::string text = to_text(schedule);
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find(' ', at), text.size());
            all.insert(text.substr(at, end - at));
            at = end + 1;
        }
        return all;
    };
    const std::set<std::string> of_a = words(a), of_b = words(b);
    std::set<std::string> keys;
    for (const std::string& word : of_a) {
        if (!of_b.contains(word)) keys.insert(word.substr(0, word.find('=')));
    }
    return keys;
}

}  // namespace

TEST_CASE("every field of a schedule is searched") {
    for (const char* target_text : targets) {
        const Target target = target_of(target_text);
        const Spec spec = spec_of("layernorm rows=4096 cols=4096");
        const auto keys = ScheduleSpace(spec, target).keys();
        std::string text = to_text(heuristic(spec, target));
        for (size_t equals = text.find('='); equals != std::string::npos; equals = text.find('=', equals + 1)) {
            const size_t start = text.rfind(' ', equals) + 1;
            const std::string key = text.substr(start, equals - start);
            CAPTURE(key);
            CHECK(std::count(keys.begin(), keys.end(), key) == 1);
        }
    }
}

TEST_CASE("candidates start with the heuristic and are legal, different and apart") {
    for (const char* spec_text : {"layernorm rows=4096 cols=4096 x=bf16 gamma=f32", "rmsnorm rows=3 cols=1 out=dx",
                                  "layernorm rows=100000 cols=33 x=f16", "rmsnorm cols=300001 x=f64 gamma=none"}) {
        for (const char* target_text : targets) {
            CAPTURE(spec_text);
            CAPTURE(target_text);
            const Spec spec = spec_of(spec_text);
            const Target target = target_of(target_text);
            const std::vector<Schedule> candidates = ScheduleSpace(spec, target).candidates(20);
            REQUIRE(!candidates.empty());
            CHECK(candidates.size() <= 20);
            CHECK(candidates.front() == heuristic(spec, target));
            for (size_t i = 0; i < candidates.size(); ++i) {
                CHECK(legality(spec, candidates[i], target).message() == "");
                for (size_t j = 0; j < i; ++j) CHECK(differing_keys(candidates[i], candidates[j]).size() >= 2);
            }
        }
    }
}

TEST_CASE("on a CPU every core gets two tasks or more, where one thread cannot do it alone") {
    const Target target = target_of("x86-64-avx512 cores=4");
    const auto fewest = [&](const char* text) {
        const Spec spec = spec_of(text);
        const ScheduleSpace space(spec, target);
        std::vector<Schedule> all = space.candidates(60);
        for (const Schedule& each : space.neighbours(all.front())) all.push_back(each);
        for (const Schedule& each : all) CHECK(space.is_shareable(each));
        Schedule alone = all.front();
        alone.row_groups = 1;
        CHECK(space.is_shareable(alone) ==
              std::ranges::any_of(all, [](const Schedule& s) { return s.row_groups == 1; }));
        return std::ranges::min(all, {}, &Schedule::row_groups).row_groups;
    };
    CHECK(fewest("layernorm rows=4096 cols=1024 x=bf16") == 8);
    CHECK(fewest("layernorm rows=256 cols=1024 x=bf16") == 4);  // as the heuristic: groups keep 64 rows
    CHECK(fewest("rmsnorm rows=64 cols=256") == 1);
}

TEST_CASE("one thread splits the columns of few rows only") {
    const auto split_rows = [](const char* spec, const char* target) {
        return std::get<CpuSchedule>(heuristic(spec_of(spec), target_of(target)).device).split_rows;
    };
    for (const char* target : {"x86-64-avx512 cores=1", "x86-64-avx512 cores=4"}) {
        CHECK(split_rows("layernorm rows=2 cols=8192", target) == 2);
        CHECK(split_rows("layernorm rows=4096 cols=4096", target) == 0);
        CHECK(split_rows("layernorm rows=30 cols=2048", target) == 0);
    }
}

TEST_CASE("a common problem has many candidates and neighbours in every direction") {
    for (const char* target_text : targets) {
        CAPTURE(target_text);
        const Spec spec = spec_of("layernorm rows=8192 cols=4096 x=bf16 gamma=f32");
        const Target target = target_of(target_text);
        const ScheduleSpace space(spec, target);
        CHECK(space.candidates(40).size() == 40);
        const Schedule start = heuristic(spec, target);
        std::set<std::string> reached;
        for (const Schedule& each : space.neighbours(start)) {
            CHECK(legality(spec, each, target).message() == "");
            const std::set<std::string> keys = differing_keys(start, each);
            CHECK(!keys.empty());
            reached.insert(keys.begin(), keys.end());
        }
        CHECK(reached.size() >= (target.isa == Isa::cuda ? 5 : 6));
    }
}

TEST_CASE("neighbours of neighbours stay legal for random problems") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(60);
    for (int64_t i = 0; i < count; ++i) {
        const Spec spec = test::random_spec(random, {.max_cols = 20000, .max_rows = 5000});
        const Target target = target_of(targets[random.between(0, 2)]);
        if (spec.rows == 0) continue;
        CAPTURE(to_text(spec));
        const ScheduleSpace space(spec, target);
        Schedule at = heuristic(spec, target);
        for (int step = 0; step < 3; ++step) {
            const std::vector<Schedule> next = space.neighbours(at);
            if (next.empty()) break;
            at = next[static_cast<size_t>(random.between(0, static_cast<int64_t>(next.size()) - 1))];
            CAPTURE(to_text(at));
            REQUIRE(legality(spec, at, target).message() == "");
        }
    }
}

TEST_CASE("predictions grow with the work and count what a schedule adds") {
    for (const char* target_text : targets) {
        CAPTURE(target_text);
        const Target target = target_of(target_text);
        const Spec spec = spec_of("layernorm cols=4096 x=bf16");
        const Schedule schedule = heuristic(spec, target);
        const Prediction small = predict(spec, schedule, target, 1000), large = predict(spec, schedule, target, 100000);
        CHECK(small.seconds > 0);
        CHECK(large.seconds > 20 * small.seconds);
        CHECK(large.bytes >= bytes_moved(spec, 100000));
        Schedule more_partials = schedule;
        more_partials.row_groups *= 8;
        const int64_t added = predict(spec, more_partials, target, 100000).bytes - large.bytes;
        CHECK(added == 7 * schedule.row_groups * 2 * 2 * 4096 * 4);
    }
}

TEST_CASE("the model knows the large effects") {
    const Target gpu = target_of("sm_90");
    const Spec wide = spec_of("layernorm rows=32768 cols=8192 x=bf16");
    const auto seconds = [&](const char* text) { return predict(wide, *parse_schedule(text), gpu, 32768).seconds; };
    const double fused = predict(wide, heuristic(wide, gpu), gpu, 32768).seconds;
    CHECK(seconds(
              "cuda form=two_pass threads_per_row=256 blocks_per_sm=4 vector_width=8 pipeline_depth=2 row_groups=66") >
          1.3 * fused);
    CHECK(seconds("cuda threads_per_row=1024 vector_width=8 row_groups=132") > 1.2 * fused);
    CHECK(seconds("cuda threads_per_row=512 vector_width=8 pipeline_depth=3 staging=bulk pace=2 row_groups=12") >
          3 * fused);
}

// Measured, us with 2 threads, split in 2 and 64 parts against row groups: 1x8192 4.8 and 22 against 6.3; 4x65536 57
// and 72 against 116; 64x1024 45 and 77 against 15 (Xeon, 2 cores, 2026-11-21).
TEST_CASE("the model knows when splitting columns pays") {
    const Target target = target_of("x86-64-avx512 cores=2 l1=49152 l2=2097152 l3=272629760");
    const auto seconds = [&](const char* text, int64_t rows, int64_t parts) {
        const Spec spec = spec_of(text);
        Schedule schedule = heuristic(spec, target);
        auto& cpu = std::get<CpuSchedule>(schedule.device);
        cpu.split_rows = parts > 0 ? rows : 0;
        cpu.column_ranges = static_cast<int>(std::max<int64_t>(parts, 1));
        return predict(spec, schedule, target, rows).seconds;
    };
    CHECK(seconds("layernorm rows=1 cols=8192", 1, 2) < seconds("layernorm rows=1 cols=8192", 1, 0));
    CHECK(seconds("layernorm rows=1 cols=8192", 1, 1) < seconds("layernorm rows=1 cols=8192", 1, 0));
    CHECK(seconds("layernorm rows=1 cols=8192", 1, 64) > 3 * seconds("layernorm rows=1 cols=8192", 1, 2));
    CHECK(seconds("layernorm rows=4 cols=65536", 4, 2) < 0.8 * seconds("layernorm rows=4 cols=65536", 4, 0));
    CHECK(seconds("layernorm rows=64 cols=1024", 64, 2) > 2 * seconds("layernorm rows=64 cols=1024", 64, 0));
    CHECK(seconds("rmsnorm cols=1024 stats=recompute", 64, 2) > seconds("rmsnorm cols=1024", 64, 2));
}

TEST_CASE("wide rows from memory overlap their sweeps, the widest among small teams") {
    const char* target = "x86-64-avx512 cores=16 l1=49152 l2=2097152 l3=314572800";
    const auto chosen = [&](const char* spec) {
        return std::get<CpuSchedule>(heuristic(spec_of(spec), target_of(target)).device);
    };
    const CpuSchedule narrow = chosen("layernorm rows=8192 cols=4096"), wide = chosen("layernorm rows=2048 cols=16384"),
                      widest = chosen("layernorm rows=512 cols=65536"), few = chosen("layernorm rows=16 cols=65536");
    CHECK(narrow.overlap == 0);
    CHECK(wide.overlap == 1);
    CHECK(wide.split_rows == 0);
    CHECK(widest.overlap == 1);
    CHECK(widest.thread_groups == 8);
    CHECK(widest.column_ranges == 2);
    CHECK(few.overlap == 0);
    CHECK(few.thread_groups == 1);
    CHECK(chosen("layernorm rows=33 cols=131072").thread_groups == 4);
    CHECK(chosen("layernorm rows=16384 cols=8193 x=bf16").row_block == 2);  // dx goes by way of the stack
}

}  // namespace normjit
