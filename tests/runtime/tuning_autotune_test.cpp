// SPDX-License-Identifier: Apache-2.0
// Tests engines that measure schedules themselves.
#include "fake_device.h"

#include "normjit/engine.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::test;

namespace {

const Spec tuned_spec = *parse_spec("layernorm rows=4096 cols=1024 x=bf16");

/// In seconds: more than any machine needs to try all candidates.
constexpr double patience = 120;

/// A machine that prefers blocks of 4 rows.
double seconds_of(const Schedule& schedule) {
    return std::get<CpuSchedule>(schedule.device).row_block == 4 ? 1e-3 : 1.5e-3;
}

struct TuningFixture {
    explicit TuningFixture(TunePolicy policy, double tune_seconds = patience) {
        device->seconds = seconds_of;
        EngineOptions options;
        options.tune = policy;
        options.tune_seconds = tune_seconds;
        options.log = {[](void* self, LogLevel level, const char* message) {
                           auto& fixture = *static_cast<TuningFixture*>(self);
                           const std::lock_guard lock(fixture.mutex);
                           fixture.warnings += level == LogLevel::warning;
                           fixture.heard.emplace_back(message);
                           if (fixture.winner_does_not_load && fixture.heard.back().starts_with("tuned "))
                               fixture.device->refusals = 1;
                       },
                       this};
        engine = std::make_unique<Engine>(make_engine(device, options));
    }
    Schedule prepared() const { return engine->prepare(tuned_spec)->artifact().schedule; }
    bool heard_of(std::string_view what) {
        const std::lock_guard lock(mutex);
        for (const std::string& line : heard) {
            if (line.find(what) != line.npos) return true;
        }
        return false;
    }

    std::mutex mutex;
    std::vector<std::string> heard;
    int warnings = 0;
    std::atomic<bool> measures = false;
    std::atomic<bool> winner_does_not_load = false;
    std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512 cores=4"));
    std::unique_ptr<Engine> engine;
};

const Schedule usual = heuristic(tuned_spec, *parse_target("x86-64-avx512 cores=4"));

}  // namespace

TEST_CASE("off: nothing is measured") {
    TuningFixture f(TunePolicy::off);
    REQUIRE(seconds_of(usual) > 1.2e-3);
    CHECK(f.prepared() == usual);
    CHECK(f.device->loads == 1);
}

TEST_CASE("on_miss: the first prepare measures and takes the fastest, the next finds it") {
    TuningFixture f(TunePolicy::on_miss);
    CHECK(seconds_of(f.prepared()) == 1e-3);
    CHECK(f.heard_of("1.500 times as fast"));
    const int loads = f.device->loads;
    CHECK(loads > 2);
    CHECK(seconds_of(f.prepared()) == 1e-3);
    CHECK(f.device->loads == loads);
    // A schedule that the caller requests does not count as the engine's choice.
    CHECK(f.engine->prepare(tuned_spec, usual)->artifact().schedule == usual);
}

TEST_CASE("any number of seconds is a time, however many a clock can count") {
    for (const double seconds : {1e10, 1e300, double{INFINITY}}) {
        TuningFixture f(TunePolicy::on_miss, seconds);
        CHECK(seconds_of(f.prepared()) == 1e-3);
    }
}

TEST_CASE("background: the heuristic's schedule is used until a faster one is found, and stays valid") {
    TuningFixture f(TunePolicy::background);
    const auto first = f.engine->prepare(tuned_spec);
    REQUIRE(first.ok());
    CHECK(first->artifact().schedule == usual);
    const TuningFixture untuned(TunePolicy::off);
    REQUIRE(untuned.engine->prepare(tuned_spec).ok());
    for (int i = 0; i < patience * 100 && f.prepared() == usual; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(seconds_of(f.prepared()) == 1e-3);
    CHECK(first->artifact().schedule == usual);
    CHECK(f.engine->plan_digest() != untuned.engine->plan_digest());
}

TEST_CASE("background: a winner that does not load is warned of, and the heuristic's schedule stays") {
    TuningFixture f(TunePolicy::background);
    f.winner_does_not_load = true;
    CHECK(f.prepared() == usual);
    for (int i = 0; i < patience * 100 && !f.heard_of("tuning: fake: does not load"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(f.heard_of("tuning: fake: does not load"));
    CHECK(f.prepared() == usual);
}

TEST_CASE("ties, a slower space and noise leave the heuristic's schedule") {
    for (const bool noisy : {false, true}) {
        TuningFixture f(TunePolicy::on_miss);
        f.device->seconds = [noisy, n = uint32_t{1}](const Schedule& schedule) mutable {
            if (!noisy) return schedule == usual ? 1e-3 : 1.01e-3;
            n = n * 1664525 + 1013904223;
            return 1e-3 * (1 + 0.01 * (n >> 24) / 255.0);
        };
        CHECK(f.prepared() == usual);
    }
}

TEST_CASE("a winner has to win twice more on other memory, and its smallest gain counts") {
    for (const int unlucky : {0, 2, 3}) {
        CAPTURE(unlucky);
        TuningFixture f(TunePolicy::on_miss);
        f.device->seconds = [&](const Schedule& schedule) {
            const bool lucky = f.device->problems != unlucky;
            return schedule == usual ? 1.5e-3
                   : lucky           ? seconds_of(schedule) * (1 + 0.1 * (f.device->problems == 3))
                                     : 2e-3;
        };
        CHECK((f.prepared() == usual) == (unlucky != 0));
        CHECK(f.device->problems == (unlucky == 2 ? 2 : 3));
        CHECK(f.heard_of("1.364 times as fast") == (unlucky == 0));
    }
}

TEST_CASE("a problem that cannot be measured gets the heuristic's schedule, with a warning") {
    TuningFixture f(TunePolicy::on_miss);
    f.device->seconds = nullptr;
    CHECK(f.prepared() == usual);
    CHECK(f.heard_of("is not tuned: tuning: this device measures nothing"));
}

TEST_CASE("what a caller's function throws while schedules are measured is a warning") {
    struct Strange {};
    for (const bool is_standard : {true, false}) {
        for (const TunePolicy policy : {TunePolicy::on_miss, TunePolicy::background}) {
            TuningFixture f(policy);
            f.device->seconds = [&](const Schedule&) -> double {
                if (is_standard) throw std::runtime_error("no threads");
                throw Strange();
            };
            CHECK(f.prepared() == usual);
            const std::string what = is_standard ? "no threads" : "an exception of an unknown type";
            const auto is_told = [&] { return f.heard_of("is not tuned: " + what); };
            for (int i = 0; i < patience * 100 && !is_told(); ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            CHECK(is_told());
            CHECK(f.warnings == 1);
        }
    }
}

TEST_CASE("making the data counts towards the time, and too slow candidates are not measured") {
    TuningFixture f(TunePolicy::on_miss, 0.1);
    f.device->fill_time = std::chrono::milliseconds(60);
    CHECK(f.prepared() == usual);
    CHECK(f.device->problems == 1);
    CHECK(f.heard_of("is not tuned: tuning: to make its data 3 times takes "));
    std::vector<char> memory(8 << 20, 1);
    const std::atomic<bool> yes = true;
    CHECK(fill_with_numbers(DType::f32, memory.data(), 8 << 20, {.stop = &yes}).message() == "tuning: stopped");
    const Deadline over{.end = Deadline::Clock::now()};
    CHECK(fill_with_numbers(DType::f32, memory.data(), 8 << 20, over).message() ==
          "tuning: there is no time to make the data");
    CHECK(memory.back() == 1);
    CHECK(fill_with_numbers(DType::f32, memory.data(), 8 << 20).ok());
    CHECK(memory.back() != 1);
}

namespace {

/// Begins to tune in the background, which will take a second or more.
void begin_to_tune(TuningFixture& f) {
    f.device->seconds = [&f](const Schedule& schedule) {
        f.measures = true;
        f.measures.notify_all();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return seconds_of(schedule);
    };
    f.device->load_time = std::chrono::milliseconds(10);
    CHECK(f.prepared() == usual);
    f.measures.wait(false);
}

}  // namespace

TEST_CASE("fork() does not wait until an engine has tuned") {
    TuningFixture f(TunePolicy::background);
    begin_to_tune(f);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(f.engine->prepare(tuned_spec).ok() ? 0 : 1);
    CHECK_FALSE(f.heard_of("tuned"));
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("destroying an engine does not wait for its tuning") {
    TuningFixture f(TunePolicy::background);
    begin_to_tune(f);
    const auto start = std::chrono::steady_clock::now();
    f.engine.reset();
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500));
    CHECK(f.heard_of("is not tuned: tuning: stopped"));
    CHECK(f.warnings == 0);
}

TEST_CASE("nothing is measured while a graph is being captured") {
    TuningFixture f(TunePolicy::on_miss);
    f.device->capturing = true;
    CHECK(f.engine->prepare(tuned_spec).status().message() == "fake: a graph is being captured");
    CHECK(f.device->loads == 0);
    f.device->capturing = false;
    CHECK(f.prepared() != usual);
}

TEST_CASE("the digest tells plans apart, whatever the order") {
    TuningFixture a(TunePolicy::off), b(TunePolicy::off), tuned(TunePolicy::on_miss);
    const Spec other = *parse_spec("rmsnorm cols=77");
    CHECK(a.engine->plan_digest() == b.engine->plan_digest());
    CHECK(a.engine->prepare(tuned_spec).ok());
    CHECK(a.engine->plan_digest() != b.engine->plan_digest());
    CHECK(a.engine->prepare(other).ok());
    CHECK(b.engine->prepare(other).ok());
    CHECK(b.engine->prepare(tuned_spec).ok());
    CHECK(a.engine->plan_digest() == b.engine->plan_digest());
    CHECK(a.engine->prepare(tuned_spec, *parse_schedule("cpu row_groups=3 strip=1 unroll=1")).ok());
    CHECK(a.engine->plan_digest() == b.engine->plan_digest());
    CHECK(tuned.engine->prepare(other).ok());
    CHECK(tuned.engine->prepare(tuned_spec).ok());
    CHECK(tuned.engine->plan_digest() != a.engine->plan_digest());
}

TEST_CASE("a CPU engine tunes for real") {
    EngineOptions options;
    options.tune = TunePolicy::on_miss;
    options.tune_seconds = 0.05;
    options.threads = 2;
    options.shipped_records = false;
    const auto engine = Engine::create(options);
    if (engine.status().code() == Code::unavailable) return;
    REQUIRE(engine.ok());
    for (const char* text : {"layernorm rows=300 cols=700 x=bf16", "rmsnorm cols=33 x=f16 out=dgamma",
                             "layernorm rows=64 cols=64 x=f64 stats=recompute"}) {
        CAPTURE(text);
        const auto kernel = engine->prepare(*parse_spec(text));
        REQUIRE(kernel.status().message() == "");
        CHECK(legality(*parse_spec(text), kernel->artifact().schedule, engine->target()).ok());
    }
    const auto none = engine->prepare(*parse_spec("rmsnorm rows=4000000000 cols=1000"));
    CHECK(none.ok());  // the problem is too large to measure, so it gets the heuristic's schedule
}
