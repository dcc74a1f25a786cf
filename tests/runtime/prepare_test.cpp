// SPDX-License-Identifier: Apache-2.0
// Tests what an engine remembers. tests/property shows that its kernels compute the right results.
#include "allocation.h"
#include "cache/kernel_table.h"
#include "cache/pack.h"
#include "fake_device.h"
#include "system/fork_gate.h"
#include "temporary_folder.h"
#include "threads.h"

#include "normjit/engine.h"

#include <atomic>
#include <cfenv>
#include <chrono>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <pthread.h>

using namespace normjit;
using namespace normjit::test;

TEST_CASE("a kernel is made once") {
    FakeEngine f;
    const auto first = f.engine.prepare(rmsnorm(100)), second = f.engine.prepare(rmsnorm(100));
    REQUIRE(first.ok());
    CHECK(f.device->loads == 1);
    CHECK(&first->artifact() == &second->artifact());
    CHECK(first->artifact().schedule == heuristic(rmsnorm(100), f.engine.target()));

    CHECK(f.engine.prepare(rmsnorm(101)).ok());
    CHECK(f.device->loads == 2);
    CHECK(f.engine.prepare(rmsnorm(100), first->artifact().schedule).ok());  // this is the engine's own choice
    CHECK(f.device->loads == 2);
    const Schedule other = *parse_schedule("cpu row_groups=3 strip=1");
    CHECK(f.engine.prepare(rmsnorm(100), other)->artifact().schedule == other);
    CHECK(f.device->loads == 3);
}

TEST_CASE("a host may have unmasked the exceptions of arithmetic") {
    FakeEngine f;
    feenableexcept(FE_ALL_EXCEPT);
    const auto kernel = f.engine.prepare(rmsnorm(777));
    CHECK(fegetexcept() == FE_ALL_EXCEPT);
    fedisableexcept(FE_ALL_EXCEPT);
    CHECK(kernel.ok());
}

TEST_CASE("the log hears of what was compiled") {
    std::vector<std::string> lines;
    const auto write = [](void* self, LogLevel level, const char* message) {
        CHECK(level == LogLevel::info);
        static_cast<std::vector<std::string>*>(self)->emplace_back(message);
    };
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    const Engine engine = make_engine(device, {.log = {write, &lines}});
    for (int i = 0; i < 3; ++i) CHECK(engine.prepare(rmsnorm(30)).ok());
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].starts_with("compiled 'rmsnorm cols=30' for fake with 'cpu row_groups="));
}

TEST_CASE("specs that differ in anything have separate kernels") {
    FakeEngine f;
    int64_t different = 0;
    for (const char* text :
         {"layernorm cols=64", "rmsnorm cols=64", "rmsnorm cols=65", "rmsnorm rows=64 cols=64",
          "rmsnorm rows=0 cols=64", "rmsnorm cols=64 x=bf16", "rmsnorm cols=64 dy=bf16", "rmsnorm cols=64 gamma=none",
          "rmsnorm cols=64 out=dx", "rmsnorm cols=64 out=dgamma", "rmsnorm cols=64 stats=recompute",
          "rmsnorm cols=64 gamma_offset=1", "rmsnorm cols=64 stats=recompute eps=1e-6", "rmsnorm cols=64 source=xhat",
          "rmsnorm cols=64 dresidual=f32"}) {
        CAPTURE(text);
        const auto kernel = f.engine.prepare(*parse_spec(text));
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        CHECK(to_text(kernel->artifact().spec) == to_text(*parse_spec(text)));
        CHECK(f.device->loads == ++different);
    }
}

TEST_CASE("threads that ask at once share one load, while the table grows") {
    FakeEngine f;
    f.device->load_time = std::chrono::milliseconds(5);
    std::atomic<int> failures = 0;
    at_once(64, [&](int) { failures += !f.engine.prepare(rmsnorm(1000)).ok(); });
    CHECK(failures == 0);
    CHECK(f.device->loads == 1);

    f.device->load_time = {};
    constexpr int specs = 300;
    at_once(8, [&](int i) {
        for (int j = 0; j < specs; ++j) {
            const int64_t cols = 1 + (j * 7 + i * 31) % specs;
            const auto kernel = f.engine.prepare(rmsnorm(cols));
            failures += !kernel.ok() || kernel->artifact().spec.cols != cols;
        }
    });
    CHECK(failures == 0);
    CHECK(f.device->loads == 1 + specs);
}

TEST_CASE("an error is not remembered, and reaches everybody who waits") {
    FakeEngine f;
    CHECK(f.engine.prepare(Spec()).status().code() == Code::invalid_argument);
    f.device->refusals = 1;
    CHECK(f.engine.prepare(rmsnorm(7)).status().message() == "fake: does not load");
    CHECK(f.engine.prepare(rmsnorm(7)).ok());

    f.device->load_time = std::chrono::milliseconds(50);
    f.device->refusals = 1;
    std::atomic<int> failures = 0;
    at_once(8, [&](int) { failures += !f.engine.prepare(rmsnorm(8)).ok(); });
    CHECK(failures >= 1);
    CHECK(f.device->loads <= 2 + 8);
    CHECK(f.engine.prepare(rmsnorm(8)).ok());
}

TEST_CASE("a kernel that is not ready can be refused") {
    FakeEngine f;
    const auto refused = f.engine.prepare(rmsnorm(9), {.on_miss = OnMiss::error});
    CHECK(refused.status().code() == Code::unavailable);
    CHECK(refused.status().message() == "prepare: there is no kernel ready for 'rmsnorm cols=9'");
    CHECK(f.engine.prepare(rmsnorm(9)).ok());
    CHECK(f.engine.prepare(rmsnorm(9), {.on_miss = OnMiss::error}).ok());
}

TEST_CASE("a kernel is for about as many rows as are expected") {
    FakeEngine f;
    const Spec open = *parse_spec("layernorm cols=1024 x=bf16");
    const auto with_rows = [&](int64_t rows) {
        Spec spec = open;
        spec.rows = rows;
        return heuristic(spec, f.engine.target());
    };
    const auto one = f.engine.prepare(open, {.expected_rows = 1}), three = f.engine.prepare(open, {.expected_rows = 3}),
               many = f.engine.prepare(open);
    REQUIRE((one.ok() && three.ok() && many.ok()));
    CHECK(one->artifact().spec == open);  // the kernel takes any number of rows
    CHECK(one->artifact().schedule == with_rows(1));
    CHECK(three->artifact().schedule == with_rows(3));
    CHECK(one->artifact().schedule != three->artifact().schedule);
    CHECK(many->artifact().schedule == heuristic(open, f.engine.target()));

    const int loads = f.device->loads;
    const auto some = f.engine.prepare(open, {.expected_rows = 4000}),
               others = f.engine.prepare(open, {.expected_rows = 4500});
    CHECK(&some->artifact() == &others->artifact());
    CHECK(some->artifact().schedule == with_rows(4096));
    CHECK(f.engine.prepare(open, {.expected_rows = INT64_MAX}).ok());  // no spec can have so many
    CHECK(f.device->loads <= loads + 1);                               // equal schedules share one kernel

    Spec fixed = open, invariant = open;
    fixed.rows = 5, invariant.invariant = true;
    CHECK(f.engine.prepare(fixed, {.expected_rows = 1})->artifact().schedule == with_rows(5));
    CHECK(f.engine.prepare(invariant, {.expected_rows = 1})->artifact().schedule ==
          heuristic(invariant, f.engine.target()));
}

TEST_CASE("a kernel for other rows serves who wants none made") {
    FakeEngine f;
    const Spec open = *parse_spec("layernorm cols=1024 x=bf16");
    const PrepareOptions ready{.on_miss = OnMiss::error, .expected_rows = 100};
    CHECK(f.engine.prepare(open, ready).status().code() == Code::unavailable);
    const auto one = f.engine.prepare(open, {.expected_rows = 1});
    f.device->capturing = true;
    CHECK(f.engine.prepare(open, {.expected_rows = 100}).status().code() == Code::capturing);
    const auto other = f.engine.prepare(open, ready);
    REQUIRE(other.ok());
    CHECK(&other->artifact() == &one->artifact());
    CHECK_FALSE(f.engine.prepare(open, *parse_schedule("cpu row_groups=3 strip=1"), ready).ok());
    f.device->capturing = false;
    const auto hundred = f.engine.prepare(open, {.expected_rows = 100});
    CHECK(&hundred->artifact() != &one->artifact());
    CHECK(&f.engine.prepare(open, ready)->artifact() == &hundred->artifact());
}

TEST_CASE("a kernel that is not ready can be made in the background") {
    FakeEngine f;
    const PrepareOptions background{.on_miss = OnMiss::background};
    const auto wait = [&](const Spec& wanted) {
        auto kernel = f.engine.prepare(wanted, background);
        while (kernel.status().code() == Code::pending) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            kernel = f.engine.prepare(wanted, background);
        }
        return kernel;
    };
    f.device->held = true;
    CHECK(f.engine.prepare(rmsnorm(10), background).status().code() == Code::pending);
    CHECK(f.engine.prepare(rmsnorm(10), background).status().message() == "prepare: 'rmsnorm cols=10' is being made");
    f.device->release();
    CHECK(wait(rmsnorm(10)).ok());
    CHECK(f.device->loads == 1);

    f.device->refusals = 1;
    CHECK(wait(rmsnorm(11)).status().message() == "fake: does not load");
    CHECK(wait(rmsnorm(11)).ok());
    CHECK(f.device->loads == 3);

    FakeEngine dropped;  // this one is dropped with jobs that have not begun
    dropped.device->load_time = std::chrono::milliseconds(20);
    for (int cols = 1; cols < 50; ++cols) CHECK(!dropped.engine.prepare(rmsnorm(cols), background).ok());
}

TEST_CASE("a graph being captured stops a miss, not a hit") {
    FakeEngine f;
    CHECK(f.engine.prepare(rmsnorm(12)).ok());
    f.device->capturing = true;
    CHECK(f.engine.prepare(rmsnorm(12)).ok());
    CHECK(f.engine.prepare(rmsnorm(13)).status().message() == "fake: a graph is being captured");
    CHECK(f.engine.prepare(rmsnorm(13), {.on_miss = OnMiss::background}).status().code() == Code::capturing);
}

TEST_CASE("finding a known spec makes nothing and allocates nothing") {
    FakeEngine f;
    for (int cols = 1; cols <= 200; ++cols) CHECK(f.engine.prepare(rmsnorm(cols)).ok());
    const Spec known = rmsnorm(77);
    const int64_t before = allocations;
    int found = 0;
    for (int i = 0; i < 1000; ++i) found += f.engine.prepare(known).ok();
    CHECK(allocations == before);
    CHECK(found == 1000);
    CHECK(f.device->loads == 200);
}

TEST_CASE("another kernel can replace one that somebody holds") {
    const auto fake = [](const char* text) {
        Artifact artifact;
        artifact.spec = *parse_spec(text);
        return std::make_shared<FakeKernel>(artifact);
    };
    const cache::LoadedKernel one = fake("rmsnorm cols=20"), two = fake("rmsnorm cols=21");
    cache::KernelTable table({});
    const cache::Request request{rmsnorm(20), {}}, other{rmsnorm(21), {}};
    table.add(request, one);
    table.add(request, two);
    CHECK(table.find(request) == one);
    table.replace(request, two);
    CHECK(table.find(request) == two);
    CHECK(table.size() == 1);
    CHECK(one.use_count() == 1);
    CHECK(table.find(other) == nullptr);
    table.replace(other, two);
    CHECK(table.find(other) == two);
    CHECK(table.size() == 1);
    table.replace(other, one);
    CHECK(table.size() == 2);
}

TEST_CASE("the least recently used kernels go, except those that somebody holds") {
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    const Engine engine = make_engine(device, {.most_kernels = 32});
    const Kernel held = *engine.prepare(rmsnorm(1));
    for (int cols = 2; cols <= 1000; ++cols) {
        REQUIRE(engine.prepare(rmsnorm(cols)).ok());
        REQUIRE(engine.prepare(rmsnorm(2)).ok());  // it is in use all the time
        REQUIRE(device->alive->kernels <= 32);
    }
    CHECK(device->alive->kernels >= 28);
    CHECK(device->loads == 1000);
    CHECK(held.artifact().spec == rmsnorm(1));
    for (const int64_t cols : {1, 2, 1000}) CHECK(engine.prepare(rmsnorm(cols)).ok());
    CHECK(device->loads == 1000);
    CHECK(engine.prepare(rmsnorm(500)).ok());
    CHECK(device->loads == 1001);

    std::vector<Kernel> all;
    for (int cols = 1; cols <= 50; ++cols) all.push_back(*engine.prepare(rmsnorm(cols)));
    CHECK(device->alive->kernels >= 50);
    all.clear();
    CHECK(engine.prepare(rmsnorm(2000)).ok());
    CHECK(device->alive->kernels <= 32);
}

TEST_CASE("the bytes of kernels have a limit as well") {
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    constexpr int64_t most = 100 << 10;
    const Engine engine = make_engine(device, {.most_kernel_bytes = most});
    for (int cols = 1; cols <= 200; ++cols) {
        const auto kernel = engine.prepare(rmsnorm(cols));
        REQUIRE(kernel.ok());
        REQUIRE(device->alive->bytes <= most);
    }
    CHECK(device->alive->bytes >= most / 2);
    CHECK(device->alive->kernels >= 2);
}

TEST_CASE("kernels are dropped while others are found") {
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    const Engine engine = make_engine(device, {.most_kernels = 8});
    std::atomic<int> failures = 0;
    at_once(8, [&](int thread) {
        for (int i = 0; i < 400; ++i) {
            const int64_t cols = 1 + (i * 7 + thread * 31) % 40;
            const auto kernel = engine.prepare(rmsnorm(cols));
            failures += !kernel.ok() || kernel->artifact().spec.cols != cols;
        }
    });
    CHECK(failures == 0);
    CHECK(engine.prepare(rmsnorm(41)).ok());
    CHECK(device->alive->kernels <= 8);
}

TEST_CASE("a thread that is cancelled while it prepares goes on until it leaves") {
    const TemporaryFolder folder;
    const auto cancel = [](void*, LogLevel, const char*) {
        pthread_cancel(pthread_self());
    };  // this happens before files are written
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    const Engine engine = make_engine(
        device, {.cache = {.folder = folder.path(), .bytes = 1 << 30, .everything = true}, .log = {cancel, nullptr}});
    bool is_ready = false;
    CHECK(is_cancelled_after([&] { is_ready = engine.prepare(rmsnorm(30)).ok(); }));
    CHECK(is_ready);
    CHECK(folder.entries() == 1);
    CHECK(engine.prepare(rmsnorm(30)).ok());
}

TEST_CASE("a thread that is cancelled while it waits for a fork() to find a kernel goes on until it leaves") {
    FakeEngine f;
    REQUIRE(f.engine.prepare(rmsnorm(30)).ok());
    lookup_mutex.lock();  // as fork() does
    bool is_ready = false;
    std::thread other([&] {
        CHECK(is_cancelled_after([&] {
            pthread_cancel(pthread_self());
            is_ready = f.engine.prepare(rmsnorm(30)).ok();
        }));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lookup_mutex.unlock();
    other.join();
    CHECK(is_ready);
    lookup_mutex.lock();  // would wait forever for a reader that was counted and has gone
    lookup_mutex.unlock();
}

TEST_CASE("a thread that is cancelled while it destroys an engine with open packs goes on until it leaves") {
    const TemporaryFolder folder;
    REQUIRE(cache::write_pack(folder / "pack", {}).ok());
    bool is_destroyed = false;
    CHECK(is_cancelled_after([&] {
        {
            const Engine engine = make_engine(std::make_shared<FakeDevice>(*parse_target("x86-64-avx512")),
                                              {.cache = {.folder = "", .packs = std::vector{folder / "pack"}}});
            pthread_cancel(pthread_self());
        }
        is_destroyed = true;
    }));
    CHECK(is_destroyed);
}
