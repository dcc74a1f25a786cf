// SPDX-License-Identifier: Apache-2.0
#include "tuning/autotune.h"

#include "support/try.h"
#include "tuning/search.h"
#include "tuning/statistics.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <fmt/format.h>

namespace normjit::tuning {

namespace {

constexpr int trial_rounds = 7, final_rounds = 25, confirming_rounds = 11;

/// The least gain for which another order of sums is acceptable.
constexpr double least_gain = 0.02;

/// The fraction of the time that is kept for the final comparison.
constexpr double final_share = 0.25;

}  // namespace

Expected<AutotuneResult> autotune(const Spec& spec, const Target& target, const Schedule& start, double seconds,
                                  const std::atomic<bool>& stop, const MakeKernel& make, const OpenProblem& open) {
    AutotuneResult result{start};
    const auto begin = Deadline::Clock::now();
    const Deadline end{Deadline::after(begin, seconds), &stop};
    NORMJIT_TRY(std::unique_ptr<TimedProblem> problem, open(end));
    const double opening = std::chrono::duration<double>(Deadline::Clock::now() - begin).count();
    if (opening * (1 + confirmations) > seconds) {
        return unavailable(fmt::format("tuning: to make its data {} times takes {:.2f} s, and there are {:.2f}",
                                       1 + confirmations, opening * (1 + confirmations), seconds));
    }
    NORMJIT_TRY(const Kernel base, make(start));
    const ScheduleSpace space(spec, target);
    Search search(space, 200, space.of_points());
    const auto compare_with_base = [&](const Kernel& kernel, int rounds) -> Expected<Comparison> {
        const Kernel pair[] = {base, kernel};
        NORMJIT_TRY(const auto times, problem->time(pair, rounds));
        return compare(times[0], times[1]);
    };
    const double searching = seconds * (1 - final_share) - confirmations * opening;
    const Deadline end_of_search{Deadline::after(begin, searching), &stop};
    while (!end_of_search.has_passed()) {
        const auto schedule = search.next();
        if (!schedule) break;
        const auto kernel = make(*schedule);
        const auto trial = kernel.ok() ? compare_with_base(*kernel, trial_rounds) : kernel.status();
        search.report(trial.ok() ? std::optional(trial->gain) : std::nullopt);
    }
    if (end.is_stopped()) return end.error("measure");
    result.measured = search.measured();
    const std::vector<Schedule> best = search.best(1, -least_gain);
    if (best.empty() || best.front() == start) return result;
    NORMJIT_TRY(const Kernel fastest, make(best.front()));
    NORMJIT_TRY(Comparison decided, compare_with_base(fastest, final_rounds));
    double gain = decided.gain;
    for (int i = 0; i < confirmations && decided.low >= 1 + least_gain; ++i) {
        problem.reset();
        NORMJIT_TRY(problem, open(end));
        NORMJIT_TRY(decided, compare_with_base(fastest, confirming_rounds));
        gain = std::min(gain, decided.gain);
    }
    if (decided.low < 1 + least_gain) return result;
    result.schedule = best.front();
    result.gain = gain;
    return result;
}

}  // namespace normjit::tuning
