// SPDX-License-Identifier: Apache-2.0
// Measures what an engine's own tuner (TunePolicy::on_miss) gains over the heuristic, and what the first prepare costs:
//   normjit_engine_tuner DEVICE SECONDS SHAPES...
// Afterwards both schedules are timed in turn, on other data, by the clock of `bench` and `tune`.
#include "command_line/device.h"
#include "command_line/shapes.h"
#include "problem/workbench.h"
#include "support/try.h"
#include "tuning/statistics.h"

#include "normjit/engine.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/core.h>

using namespace normjit;

namespace {

using Clock = std::chrono::steady_clock;

struct Prepared {
    Schedule schedule;
    double seconds = 0;
};

Expected<Prepared> prepare(const std::string& device, const Spec& spec, TunePolicy policy, double tune_seconds) {
    EngineOptions options;
    options.device = device;
    options.tune = policy;
    options.tune_seconds = tune_seconds;
    options.shipped_records = false;
    NORMJIT_TRY(const Engine engine, Engine::create(options));
    const auto start = Clock::now();
    NORMJIT_TRY(const Kernel kernel, engine.prepare(spec));
    return Prepared{kernel.artifact().schedule, std::chrono::duration<double>(Clock::now() - start).count()};
}

Expected<tuning::Comparison> compare(cli::Workbench& workbench, const Spec& spec, const Schedule& usual,
                                     const Schedule& tuned) {
    constexpr int rounds = 101;
    NORMJIT_TRY(const Kernel base, workbench.engine().prepare(spec, usual));
    NORMJIT_TRY(const Kernel other, workbench.engine().prepare(spec, tuned));
    NORMJIT_TRY(const auto problem, workbench.open_checked_problem(base, *spec.batch(), 1));
    NORMJIT_RETURN_IF_ERROR(problem->check(other));
    const Kernel pair[] = {base, other};
    NORMJIT_TRY(const auto seconds, problem->time(pair, rounds));
    return tuning::compare(seconds[0], seconds[1]);
}

Status run(const std::string& device, double seconds, const std::vector<std::string>& inputs) {
    NORMJIT_TRY(const auto specs, cli::read_shapes(inputs));
    NORMJIT_TRY(const auto workbench, cli::open_workbench({.device = device}));
    fmt::print("{:<44} {:>10} {:>10}  gain of the tuned schedule, and where the true one lies\n", "problem",
               "prepare ms", "tuned ms");
    for (const Spec& spec : specs) {
        NORMJIT_TRY(const Prepared usual, prepare(device, spec, TunePolicy::off, seconds));
        NORMJIT_TRY(const Prepared tuned, prepare(device, spec, TunePolicy::on_miss, seconds));
        tuning::Comparison gain{1, 1, 1};
        if (tuned.schedule != usual.schedule) {
            NORMJIT_TRY(gain, compare(*workbench, spec, usual.schedule, tuned.schedule));
        }
        fmt::print("{:<44} {:>10.1f} {:>10.1f}  {:.3f} ({:.3f} to {:.3f})\n", to_text(spec), usual.seconds * 1e3,
                   tuned.seconds * 1e3, gain.gain, gain.low, gain.high);
        std::fflush(stdout);
    }
    return {};
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) {
        fmt::print(stderr, "normjit_engine_tuner DEVICE SECONDS SHAPES...\n");
        return 2;
    }
    const Status status = run(arguments[1], std::atof(arguments[2]), {arguments + 3, arguments + count});
    if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
    return status.ok() ? 0 : 1;
}
