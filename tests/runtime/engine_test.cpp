// SPDX-License-Identifier: Apache-2.0
#include "normjit/engine.h"

#include <algorithm>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

Expected<Engine> engine(int threads) { return Engine::create({.threads = threads, .parallel_for = {}}); }

}  // namespace

TEST_CASE("threads of an engine") {
    if (!host_target().ok()) return;
    CHECK(engine(0)->threads() == host_target()->cpu.cores);
    CHECK(engine(3)->threads() == 3);
    for (int wrong : {-1, 5000}) {
        CHECK(engine(wrong).status().code() == Code::invalid_argument);
        CHECK(engine(wrong).status().message() ==
              "engine: threads: " + std::to_string(wrong) + "; must be 1 to 4096, or 0 for one per core");
    }
    const ParallelFor own{[](void*, int64_t, void (*)(void*, int64_t), void*) {}, nullptr};
    const auto lent = Engine::create({.threads = 5, .parallel_for = own});
    CHECK(lent->threads() == 5);
    CHECK(lent->whose_threads() == "those of the engine's user");
    CHECK(Engine::create({.parallel_for = own, .thread_policy = ThreadPolicy::openmp}).status().message() ==
          "engine: thread_policy: openmp; with a parallel_for it must be automatic");
}

TEST_CASE("schedules are for the cores that work on a launch") {
    if (!host_target().ok()) return;
    const int cores = host_target()->cpu.cores;
    CHECK(engine(1)->target().cpu.cores == 1);
    CHECK(engine(cores)->target() == *host_target());
    CHECK(engine(cores + 1)->target() == *host_target());
}

TEST_CASE("compile takes the heuristic's schedule unless told otherwise") {
    if (!host_target().ok()) return;
    const Engine one = *engine(1);
    const Spec spec = *parse_spec("rmsnorm cols=100 x=bf16");
    CHECK(one.compile(spec)->schedule == heuristic(spec, one.target()));
    const Schedule schedule = *parse_schedule("cpu row_groups=3 strip=1");
    CHECK(one.compile(spec, schedule)->schedule == schedule);
    CHECK(one.compile(Spec()).status().code() == Code::invalid_argument);
}

TEST_CASE("load refuses what would not run") {
    if (!host_target().ok()) return;
    const Engine one = *engine(1);
    const Artifact good = *one.compile(*parse_spec("layernorm cols=33"));
    CHECK(one.load(good).ok());
    const auto refused = [&](auto spoil) {
        Artifact artifact = good;
        spoil(artifact);
        return one.load(artifact).status().code();
    };
    CHECK(refused([](Artifact& a) { a.target = *parse_target("sm_90"); }) == Code::unavailable);
    CHECK(refused([](Artifact& a) { a.code.clear(); }) == Code::invalid_argument);
    CHECK(refused([](Artifact& a) { a.spec.cols = 0; }) == Code::invalid_argument);
    if (good.format == CodeFormat::portable) return;  // it has no functions to take away
    CHECK(refused([](Artifact& a) { a.entries.clear(); }) == Code::invalid_argument);
    const auto rows_at = [&](int64_t offset) {
        return refused([&](Artifact& a) { std::ranges::find(a.entries, "rows", &EntryPoint::name)->offset = offset; });
    };
    CHECK(rows_at(1 << 30) == Code::invalid_argument);
    CHECK(rows_at(-1) == Code::invalid_argument);
    CHECK(refused([](Artifact& a) {
              std::erase_if(a.entries, [](const EntryPoint& e) { return e.name == "final_reduce"; });
          }) == Code::invalid_argument);
}

TEST_CASE("load refuses split launches without the functions for them") {
    if (!host_target().ok()) return;
    const Engine one = *engine(1);
    const Spec spec = *parse_spec("layernorm cols=5000");
    const auto made = [&](const char* schedule) { return one.compile(spec, *parse_schedule(schedule)); };
    auto good = made("cpu strip=1 column_ranges=3 thread_groups=2 split_rows=100 nontemporal_kb=0 overlap=1");
    const bool overlaps = good.ok();
    if (!overlaps) good = made("cpu strip=1 column_ranges=3 thread_groups=2 split_rows=100 nontemporal_kb=0");
    REQUIRE(good.ok());
    if (good->geometry.cpu.split_rows == 0) return;  // there is no machine code
    CHECK(one.load(*good).ok());
    const auto refused = [&](auto spoil) {
        Artifact artifact = *good;
        spoil(artifact);
        return one.load(artifact).status().code() == Code::invalid_argument;
    };
    const auto lacks = [&](const char* name) {
        return refused([&](Artifact& a) { std::erase_if(a.entries, [&](const auto& e) { return e.name == name; }); });
    };
    CHECK(lacks("sweep0"));
    CHECK(lacks("sweep1"));
    if (!overlaps) return;
    CHECK(lacks("both_sweeps_nontemporal"));
    CHECK(refused([](Artifact& a) { a.geometry.cpu.sweeps = 1; }));
}
