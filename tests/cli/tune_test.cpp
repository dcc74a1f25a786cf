// SPDX-License-Identifier: Apache-2.0
#include "problem/workbench.h"
#include "temporary_folder.h"
#include "tune/device_tuner.h"
#include "tune/worker.h"
#include "tuning/search.h"
#include "tuning/statistics.h"

#include "normjit/artifact.h"

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::cli;
using namespace normjit::cli::tune;
using namespace normjit::tuning;

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto patience = std::chrono::minutes(1);  // more than any machine needs
constexpr const char* target_text = "x86-64-avx512 cores=4";
constexpr const char* spec_text = "layernorm rows=4096 cols=1024 x=bf16";

/// Returns the speed of a schedule on an imaginary machine, where that of the heuristic's schedule is 1.
double gain_of(const Schedule& schedule) {
    const auto& cpu = std::get<CpuSchedule>(schedule.device);
    double gain = 1;
    gain += cpu.row_block == 4 ? 0.1 : 0;
    gain += cpu.prefetch == 0 ? 0.05 : 0;
    gain += cpu.unroll == 2 ? 0.05 : 0;
    gain += schedule.row_groups == 8 ? 0.05 : 0;
    return gain;
}

/// Counters that the processes of a test share.
struct Shared {
    std::atomic<int> trials, starts, opens, finals;
    double lost[3];  ///< subtracted from every gain: one number for each final; the last one also for all further
                     ///< finals
    int copies;
    double warm_gain;  ///< the warm gain of every schedule
    int hangs;         ///< the number of candidates with strip=1 that get no answer
    static Shared* create() {
        void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(memory != MAP_FAILED);
        return new (memory) Shared{};
    }
};

/// A worker of the imaginary machine. Candidates with cache_columns=0 crash it, candidates with strip=1 hang or are
/// wrong, and candidates with row_block=32 are wrong.
void made_up_worker(Shared& shared, Channel& channel) {
    ++shared.starts;
    static_cast<void>(channel.send({{"model", "Model T"}, {"target", target_text}, {"threads", 4}, {"cold", true}}));
    const auto kernel_of = [](double gain) {
        return Json{{"median", 1e-3 / gain}, {"p20", 0.9e-3 / gain}, {"p80", 1.1e-3 / gain},
                    {"gain", gain},          {"low", gain - 0.002},  {"high", gain + 0.002}};
    };
    for (;;) {
        const auto request = channel.receive(Clock::time_point::max());
        if (!request.ok()) return;
        Json answer = Json::object();
        if ((*request)["op"] == "trial") {
            ++shared.trials;
            const Schedule schedule = *parse_schedule((*request)["schedule"].get<std::string>());
            const auto& cpu = std::get<CpuSchedule>(schedule.device);
            if (cpu.cache_columns == 0) raise(SIGKILL);
            if (cpu.strip == 1 && shared.hangs-- > 0) pause();
            if (cpu.strip == 1 || cpu.row_block == 32) {
                answer = {{"outcome", "wrong"}, {"message", "wrong: dx"}};
            } else {
                answer = kernel_of(gain_of(schedule));
                answer["outcome"] = "measured";
                answer["time"] = answer["median"];
            }
        } else if ((*request)["op"] == "open") {
            ++shared.opens;
            answer = {{"caches", "cold"}, {"copies", shared.copies}};
        } else if ((*request)["op"] == "final" && (*request)["warm"]) {
            answer = {{"kernels", {kernel_of(1), kernel_of(shared.warm_gain)}}, {"noise", 0.01}, {"share", 0.9}};
        } else if ((*request)["op"] == "final") {
            const double lost = shared.lost[std::min(shared.finals++, 2)];
            answer = {{"kernels", Json::array({kernel_of(1)})}, {"noise", 0.01}, {"share", 0.5}};
            for (const std::string text : (*request)["schedules"])
                answer["kernels"].push_back(kernel_of(gain_of(*parse_schedule(text)) - lost));
        }
        static_cast<void>(channel.send(answer));
    }
}

TunerOptions tuner_options(const test::TemporaryFolder& folder) {
    TunerOptions options;
    options.records = folder / "records.jsonl";
    options.journal = folder / "records.jsonl.progress";
    options.most = 60;
    options.version = "1.2.3";
    options.date = "2026-11-21";
    return options;
}

size_t count_lines(const std::filesystem::path& path) {
    std::ifstream file(path);
    size_t count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
}

}  // namespace

TEST_CASE("a comparison encloses the true gain, and reports too few samples") {
    std::vector<double> base, own;
    for (int i = 0; i < 101; ++i) {
        const double weather = 1 + 0.5 * (i % 7);  // affects both kernels
        base.push_back(1.2 * weather * (1 + 0.001 * (i % 5)));
        own.push_back(weather);
    }
    const Comparison c = compare(base, own);
    CHECK(c.gain == doctest::Approx(1.2024).epsilon(1e-3));
    CHECK(c.low >= 1.2);
    CHECK(c.high <= 1.2049);
    CHECK(c.low < c.gain);
    CHECK(c.gain < c.high);
    const Comparison few = compare({2, 1, 3}, {1, 1, 1});
    CHECK(few.low == 1);
    CHECK(few.gain == 2);
    CHECK(few.high == 3);
    CHECK(compare({}, {}).gain == 1);
}

TEST_CASE("the search measures nothing twice, climbs, and ends") {
    const Spec spec = *parse_spec(spec_text);
    const Target target = *parse_target(target_text);
    const ScheduleSpace space(spec, target);
    Search search(space, 80);
    std::set<std::string> seen = {to_text(search.heuristic())};
    while (const auto schedule = search.next()) {
        CHECK(seen.insert(to_text(*schedule)).second);
        for (const Schedule& ahead : search.ahead(3)) CHECK(!seen.contains(to_text(ahead)));
        search.report(gain_of(*schedule));
    }
    CHECK(seen.size() == search.measured() + 1);
    CHECK(search.measured() <= 80);
    CHECK(search.best_gain() == doctest::Approx(1.25));  // the gain of all four preferences of the machine
    REQUIRE(search.best(3, 0).size() == 3);
    CHECK(gain_of(search.best(3, 0)[0]) == doctest::Approx(1.25));

    Search small(space, 5);
    int count = 0;
    while (small.next()) small.report(0.5), ++count;
    CHECK(count == 5);
    CHECK(small.best(3, 0.01).empty());
}

TEST_CASE("a child that crashes or hangs is a specific error") {
    auto crash = Child::start([](Channel&) { raise(SIGKILL); });
    REQUIRE(crash.ok());
    CHECK(crash->channel().receive(Clock::now() + patience).status().message() == "has ended");
    CHECK(crash->kill() == "signal 9 (Killed)");
    auto hang = Child::start([](Channel&) { pause(); });
    REQUIRE(hang.ok());
    CHECK(hang->channel().receive(Clock::now() + std::chrono::milliseconds(50)).status().message() ==
          "no answer in time");
    auto talk = Child::start([](Channel& channel) {
        const auto heard = channel.receive(Clock::time_point::max());
        static_cast<void>(channel.send({{"heard", *heard}}));
        _exit(3);
    });
    REQUIRE(talk.ok());
    CHECK(talk->channel().send({{"n", 1}}).ok());
    CHECK(talk->channel().receive(Clock::now() + patience)->dump() == R"({"heard":{"n":1}})");
    CHECK(talk->channel().receive(Clock::now() + patience).status().message() == "has ended");
    CHECK(talk->kill() == "exit code 3");
}

TEST_CASE("bad candidates affect nothing else; a restart measures nothing again") {
    const test::TemporaryFolder folder;
    Shared& shared = *Shared::create();
    const auto work = [&](Channel& channel) { made_up_worker(shared, channel); };
    const Spec spec = *parse_spec(spec_text);
    const auto tune = [&](DeviceTuner& tuner) { return tuner.tune(spec, Clock::time_point::max(), [](size_t) {}); };
    shared.hangs = 1;
    TunerOptions options = tuner_options(folder);
    options.timeout_seconds = 3;
    DeviceTuner tuner(options, work);
    const auto first = tune(tuner);
    REQUIRE(first.status().message() == "");
    const TuningRecord& record = *first->record;
    const auto& best = std::get<CpuSchedule>(record.schedule.device);
    CHECK(record.gain == doctest::Approx(1.25));
    CHECK(best.cache_columns == 1);
    CHECK(best.strip != 1);
    CHECK(record.device == DeviceClass{"Model T", *parse_target(target_text), 4});
    CHECK(record.heuristic == heuristic(spec, record.device.target));
    CHECK(record.verified == "double");
    std::string all;
    for (const std::string& failure : first->failures) all += failure + "\n";
    CHECK(all.find("the process ended: signal 9") != std::string::npos);
    CHECK(all.find("no answer within") != std::string::npos);
    CHECK(all.find("wrong: wrong: dx") != std::string::npos);
    CHECK(shared.starts > 2);
    CHECK(shared.trials == record.candidates - 1);

    CHECK(record.caches == "cold");

    // The records already contain the problem.
    shared.trials = 0;
    DeviceTuner again(tuner_options(folder), work);
    CHECK(tune(again)->was_done);
    CHECK(count_lines(folder / "records.jsonl") == 1);
    // As if the tuner was killed in the middle of a journal line, before the record was written: all results are
    // reused.
    std::filesystem::remove(folder / "records.jsonl");
    std::ofstream(folder / "records.jsonl.progress", std::ios::app) << "{\"key\":\"half";
    DeviceTuner resumed(tuner_options(folder), work);
    CHECK(tune(resumed)->record->schedule == record.schedule);
    CHECK(shared.trials == 0);

    // An earlier version measured it in the caches, which this version would not do.
    TuningRecord warm = record;
    warm.caches = "warm";
    std::ofstream(folder / "records.jsonl") << to_text(warm) << "\n";
    DeviceTuner anew(tuner_options(folder), work);
    CHECK(!tune(anew)->was_done);
}

TEST_CASE("with invariant=1 a record that the engine would ignore does not count as done") {
    Shared& shared = *Shared::create();
    const Spec spec = *parse_spec("layernorm rows=4096 cols=1024 x=bf16 invariant=1");
    TuningRecord record;
    record.spec = spec;
    record.device = {"Model T", *parse_target(target_text), 4};
    record.heuristic = heuristic(spec, record.device.target);
    record.times = record.heuristic_times = {1e-3, 1e-3, 1e-3};
    record.candidates = 10;
    record.caches = "cold";
    record.generator = generator_version;
    const auto is_done = [&](const Schedule& schedule) {
        CHECK(legality(spec, schedule, record.device.target).message() == "");
        const test::TemporaryFolder folder;
        TunerOptions options = tuner_options(folder);
        options.most = 1;
        record.schedule = schedule;
        std::ofstream(options.records) << to_text(record) << "\n";
        DeviceTuner tuner(options, [&](Channel& channel) { made_up_worker(shared, channel); });
        const auto outcome = tuner.tune(spec, Clock::time_point::max(), [](size_t) {});
        REQUIRE(outcome.status().message() == "");
        return outcome->was_done;
    };
    CHECK(is_done(record.heuristic));
    Schedule other = record.heuristic;
    std::get<CpuSchedule>(other.device).unroll += 1;
    CHECK(!is_done(other));
}

TEST_CASE("a winner has to win twice more on other memory") {
    const Spec spec = *parse_spec(spec_text);
    const auto tuned = [&](double second, double third, int finals) {
        const test::TemporaryFolder folder;
        Shared& shared = *Shared::create();
        shared.lost[1] = second, shared.lost[2] = third;
        TunerOptions options = tuner_options(folder);
        options.most = 3;
        TuningRecord hint;
        hint.spec = *parse_spec("layernorm rows=8192 cols=1024 x=bf16");
        hint.device = {"Model T", *parse_target(target_text), 4};
        hint.heuristic = heuristic(spec, hint.device.target);
        hint.schedule = *parse_schedule("cpu row_groups=8 row_block=4 strip=2 unroll=2 cache_columns=1 prefetch=0");
        hint.times = hint.heuristic_times = {1e-3, 1e-3, 1e-3};
        std::ofstream(options.records) << to_text(hint) << "\n";
        DeviceTuner tuner(options, [&](Channel& channel) { made_up_worker(shared, channel); });
        const auto outcome = tuner.tune(spec, Clock::time_point::max(), [](size_t) {});
        REQUIRE(outcome.status().message() == "");
        CHECK(shared.finals == finals);
        return outcome->record->gain;
    };
    CHECK(tuned(0.1, 0.05, 3) == doctest::Approx(1.15));
    CHECK(tuned(0.05, 0.1, 3) == doctest::Approx(1.15));
    CHECK(tuned(0.25, 0, 2) == 1);
    CHECK(tuned(0, 0.245, 3) == 1);  // less than the noise of 0.01
}

TEST_CASE("a winner may not lose more with its data in the caches than it gains without") {
    const Spec spec = *parse_spec(spec_text);
    const auto tuned = [&](int copies, double warm_gain) {
        const test::TemporaryFolder folder;
        Shared& shared = *Shared::create();
        shared.copies = copies, shared.warm_gain = warm_gain;
        DeviceTuner tuner(tuner_options(folder), [&](Channel& channel) { made_up_worker(shared, channel); });
        const auto outcome = tuner.tune(spec, Clock::time_point::max(), [](size_t) {});
        REQUIRE(outcome.status().message() == "");
        return *parse_record(to_text(*outcome->record));
    };
    const TuningRecord kept = tuned(2, 0.81);  // not 1.25
    CHECK(kept.gain == doctest::Approx(1.25));
    CHECK(kept.warm_gain == doctest::Approx(0.81));
    const TuningRecord dropped = tuned(2, 0.79);
    CHECK(!dropped.is_tuned());
    CHECK(dropped.gain == 1);
    CHECK(dropped.times == dropped.heuristic_times);
    CHECK(dropped.share == doctest::Approx(0.4));
    CHECK(tuned(1, 0.1).is_tuned());  // the data of this problem is never in the caches
    CHECK(tuned(1, 0.1).warm_gain == 0);
}

TEST_CASE("a candidate that crashed the tuner twice is skipped") {
    const test::TemporaryFolder folder;
    const Spec spec = *parse_spec(spec_text);
    const DeviceClass device{"Model T", *parse_target(target_text), 4};
    Journal journal(folder / "j");
    const Schedule schedule = heuristic(spec, device.target);
    CHECK(journal.start(spec, device, schedule).ok());
    CHECK(Journal(folder / "j").find(spec, device, schedule).starts == 1);
    CHECK(journal.start(spec, device, schedule).ok());
    CHECK(Journal(folder / "j").find(spec, device, schedule).starts == 2);
    CHECK(!Journal(folder / "j").find(spec, device, schedule).finished);
    CHECK(journal.finish(spec, device, schedule, {}).ok());
    CHECK(Journal(folder / "j").find(spec, device, schedule).gain == -1);
    DeviceClass other = device;
    other.threads = 8;
    CHECK(Journal(folder / "j").find(spec, other, schedule).starts == 0);
}

TEST_CASE("a checked problem accepts correct kernels only, on warm and cold data") {
    for (const Caches caches : {Caches::warm, Caches::cold}) {
        auto workbench = open_workbench({.device = "cpu", .threads = 2}, caches);
        if (workbench.status().code() == Code::unavailable) return;
        REQUIRE(workbench.ok());
        const Engine& engine = (*workbench)->engine();
        struct Pair {
            const char *right, *wrong;
            const char* message;
        };
        // The second of each pair uses the same tensors.
        for (const Pair& specs :
             {Pair{"layernorm rows=3000 cols=1000 x=bf16", "layernorm rows=3000 cols=1000 x=bf16 gamma_offset=0.5",
                   "wrong: dx at row 0, column "},
              Pair{"rmsnorm rows=7 cols=33", "rmsnorm rows=7 cols=33 gamma_offset=0.01", "wrong: dx at row 0, column "},
              Pair{"rmsnorm rows=40000 cols=64 out=dgamma", "rmsnorm rows=40000 cols=64 out=dgamma source=xhat",
                   "wrong: dgamma at column "}}) {
            CAPTURE(specs.right);
            const auto kernel_for = [&](const char* text) {
                const Spec spec = *parse_spec(text);
                return *engine.load(*engine.compile(spec, heuristic(spec, engine.target())));
            };
            const Kernel kernel = kernel_for(specs.right);
            auto problem = (*workbench)->open_checked_problem(kernel, *kernel.artifact().spec.batch(), 1);
            REQUIRE(problem.status().message() == "");
            CHECK((*problem)->check(kernel).message() == "");
            CHECK((*problem)->check(kernel_for(specs.wrong)).message().starts_with(specs.message));
            const Kernel pair[] = {kernel, kernel};
            CHECK((*problem)->is_cold() == (*workbench)->is_cold());
            const auto seconds = (*problem)->time(pair, 4);
            REQUIRE(seconds.ok());
            REQUIRE(seconds->size() == 2);
            CHECK((*seconds)[1].size() == 4);
            for (const double each : (*seconds)[0]) CHECK(each > 0);
        }
    }
}
