// SPDX-License-Identifier: Apache-2.0
#include "normjit/space.h"

#include "random_formula.h"

#include <algorithm>
#include <cmath>
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

/// Returns the keys whose values differ between two schedules.
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

TEST_CASE("a problem without rows has neighbours as well") {
    for (const char* target_text : targets) {
        for (const char* text : {"layernorm rows=0 cols=64", "rmsnorm rows=0 cols=70000", "rmsnorm rows=1 cols=1"}) {
            const Spec spec = spec_of(text);
            const Target target = target_of(target_text);
            const ScheduleSpace space(spec, target);
            CHECK(legality(spec, space.start(), target).ok());
            for (const Schedule& near : space.neighbours(space.start())) CHECK(legality(spec, near, target).ok());
        }
    }
}

TEST_CASE("with invariant=1, all schedules add a row's elements in one order") {
    for (const char* target_text : targets) {
        const Target target = target_of(target_text);
        for (const char* size : {"rows=8192 cols=1024", "rows=64 cols=16384", "rows=300 cols=96"}) {
            const Spec spec = spec_of(std::string("layernorm x=bf16 gamma=f32 invariant=1 ") + size);
            const ScheduleSpace space(spec, target);
            for (const auto& found : {space.neighbours(space.start()), space.of_points(), space.relatives()}) {
                for (const Schedule& each : found) CHECK(usability(spec, each, target).message() == "");
            }
        }
    }
}

TEST_CASE("with invariant=1, no number of rows or slices changes the order in which a row's elements are added") {
    test::Random random(1);
    const test::SpecLimits limits = {.max_cols = 40000, .slices_percent = 60};
    for (int64_t i = 0; i < test::rounds(1500); ++i) {
        const auto drawn = test::random_formula_spec(random, limits);
        Spec any = drawn.ok() && random.chance(30) ? *drawn : test::random_spec(random, limits);
        any.invariant = true;
        any.rows.reset();
        if (any.has_slices()) any.slices.reset();
        any = canonical(any);
        if (!any.invariant) continue;
        const Target target = test::random_target(random);
        const Schedule whole = heuristic(any, target);
        for (const int64_t slices : {1, 3}) {
            Spec part = any;
            part.rows = random.between(1, 100000);
            if (any.has_slices()) part.slices = slices;
            part = canonical(part);
            CAPTURE(to_text(any));
            CAPTURE(to_text(part));
            CAPTURE(to_text(target));
            CAPTURE(to_text(whole));
            CHECK_MESSAGE(sum_rows_alike(heuristic(part, target), whole), to_text(heuristic(part, target)));
        }
    }
}

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

TEST_CASE("a search starts at the heuristic's schedule, with small steps in all directions") {
    int steps_of_groups = 0;
    for (const char* target_text : targets) {
        CAPTURE(target_text);
        const Spec spec = spec_of("layernorm rows=8192 cols=4096 x=bf16 gamma=f32");
        const Target target = target_of(target_text);
        const ScheduleSpace space(spec, target);
        CHECK(space.start() == heuristic(spec, target));
        const std::vector<Schedule> all = space.neighbours(space.start());
        REQUIRE(all.size() >= 8);
        std::set<std::string> first, reached;
        for (size_t i = 0; i < 4; ++i) first.insert(*differing_keys(space.start(), all[i]).begin());
        CHECK(first.size() == 4);
        double last = 0;
        for (const Schedule& each : all) {
            CHECK(legality(spec, each, target).message() == "");
            const std::set<std::string> keys = differing_keys(space.start(), each);
            CHECK(!keys.empty());
            reached.insert(keys.begin(), keys.end());
            if (keys != std::set<std::string>{"row_groups"}) continue;
            const double distance = std::fabs(std::log2(double(each.row_groups) / double(space.start().row_groups)));
            CHECK(distance >= last - 0.1);
            last = distance;
            ++steps_of_groups;
        }
        CHECK(reached.size() >= (target.isa == Isa::cuda ? 5 : 6));
    }
    CHECK(steps_of_groups >= 2);
}

TEST_CASE("on a CPU every core gets at least two tasks, unless one thread is enough") {
    const Target target = target_of("x86-64-avx512 cores=4");
    const auto fewest = [&](const char* text) {
        const Spec spec = spec_of(text);
        const ScheduleSpace space(spec, target);
        std::vector<Schedule> all = space.neighbours(space.start());
        all.insert(all.begin(), space.start());
        for (const Schedule& each : all) CHECK(space.is_shareable(each));
        Schedule alone = all.front();
        alone.row_groups = 1;
        CHECK(space.is_shareable(alone) ==
              std::ranges::any_of(all, [](const Schedule& s) { return s.row_groups == 1; }));
        return std::ranges::min(all, {}, &Schedule::row_groups).row_groups;
    };
    CHECK(fewest("layernorm rows=4096 cols=1024 x=bf16") == 8);
    // As with the heuristic's schedule, every group keeps 64 rows.
    CHECK(fewest("layernorm rows=256 cols=1024 x=bf16") == 4);
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

TEST_CASE("neighbours of neighbours stay legal for random problems") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(60);
    for (int64_t i = 0; i < count; ++i) {
        const Spec spec = test::random_spec(random, {.max_cols = 20000, .max_rows = 5000});
        const Target target = target_of(targets[random.between(0, 2)]);
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

TEST_CASE("relatives are schedules of similar problems, and in the space") {
    const Target target = target_of("sm_90 sms=132 shared=232448");
    for (const char* text : {"layernorm rows=2048 cols=3001 x=bf16", "rmsnorm rows=4 cols=12345 x=f16",
                             "layernorm rows=100000 cols=320 x=bf16", "rmsnorm rows=300 cols=9216 out=dx"}) {
        CAPTURE(text);
        const Spec spec = spec_of(text);
        const ScheduleSpace space(spec, target);
        const std::vector<Schedule> relatives = space.relatives();
        CHECK(relatives.size() >= 2);
        std::set<std::string> different = {to_text(space.start())};
        size_t far = 0;
        for (const Schedule& each : relatives) {
            CHECK(legality(spec, each, target).message() == "");
            CHECK(different.insert(to_text(each)).second);
            if (differing_keys(space.start(), each).size() > 2) ++far;
        }
        CHECK(far >= 2);
    }
}

TEST_CASE("wide rows from memory overlap their sweeps, the widest in small thread groups") {
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
    CHECK(chosen("layernorm rows=16384 cols=8193 x=bf16").row_block == 2);  // dx goes through the stack
}

}  // namespace normjit
