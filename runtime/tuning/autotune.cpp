// SPDX-License-Identifier: Apache-2.0
#include "tuning/autotune.h"

#include "support/try.h"
#include "tuning/search.h"
#include "tuning/statistics.h"

#include <algorithm>
#include <chrono>
#include <memory>

namespace normjit::tuning {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int trial_rounds = 7, final_rounds = 25, confirming_rounds = 11;

/// Less is not worth another order of sums.
constexpr double least_gain = 0.02;

/// Of the time, for the comparison that decides.
constexpr double final_share = 0.25;

}  // namespace

Expected<AutotuneResult> autotune(const Spec& spec, const Target& target, const Schedule& start, double seconds,
                                  const MakeKernel& make, const OpenRig& open) {
    AutotuneResult result{start};
    NORMJIT_TRY(std::unique_ptr<Rig> rig, open());
    NORMJIT_TRY(const Kernel base, make(start));
    const ScheduleSpace space(spec, target);
    Search search(space, {.most = 200, .seeds = 8});
    const auto end = Clock::now() + std::chrono::duration<double>(seconds * (1 - final_share));
    const auto compare_with_base = [&](const Kernel& kernel, int rounds) -> Expected<Comparison> {
        const Kernel pair[] = {base, kernel};
        NORMJIT_TRY(const auto times, rig->time(pair, rounds));
        return compare(times[0], times[1]);
    };
    while (Clock::now() < end) {
        const auto schedule = search.next();
        if (!schedule) break;
        const auto kernel = make(*schedule);
        const auto trial = kernel.ok() ? compare_with_base(*kernel, trial_rounds) : kernel.status();
        search.report(trial.ok() ? std::optional(trial->gain) : std::nullopt);
    }
    result.measured = search.measured();
    const std::vector<Schedule> best = search.best(1, -least_gain);
    if (best.empty() || best.front() == start) return result;
    NORMJIT_TRY(const Kernel fastest, make(best.front()));
    NORMJIT_TRY(Comparison decided, compare_with_base(fastest, final_rounds));
    double gain = decided.gain;
    for (int i = 0; i < confirmations && decided.low >= 1 + least_gain; ++i) {
        rig.reset();
        NORMJIT_TRY(rig, open());
        NORMJIT_TRY(decided, compare_with_base(fastest, confirming_rounds));
        gain = std::min(gain, decided.gain);
    }
    if (decided.low < 1 + least_gain) return result;
    result.schedule = best.front();
    result.gain = gain;
    return result;
}

}  // namespace normjit::tuning
