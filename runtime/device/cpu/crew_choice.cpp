// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/crew_choice.h"

namespace normjit::cpu {

CrewChoice::Launch CrewChoice::next(int64_t rows) {
    Class& its = class_of(rows);
    const int64_t number = its.number.fetch_add(1, std::memory_order_relaxed);
    const int best = its.best.load(std::memory_order_relaxed);
    if (number < trial_launches) return {0, rows, number};
    if (number < its.trial.load(std::memory_order_relaxed)) return {best, rows, number};
    if (may_try(its, 1 - best)) return {1 - best, rows, number};
    its.trial.store(number + 1, std::memory_order_relaxed);
    return {best, rows, number};
}

void CrewChoice::note(const Launch& launch, double seconds, double waited) {
    Class& its = class_of(launch.rows);
    const int64_t trial = its.trial.load(std::memory_order_relaxed);
    const auto rows = static_cast<double>(std::max<int64_t>(launch.rows, 1));
    const double row_seconds = seconds / rows;
    const bool has_waited = waited > most * seconds;
    const int best = its.best.load(std::memory_order_relaxed);
    Mean& mean = its.mean[launch.crew];
    if (launch.crew != best) {
        if (launch.number == trial) mean.begin();
        if (launch.number > trial) mean.add(row_seconds, has_waited);
        if (launch.number >= trial + trial_launches - 1) end_trial(its, launch.number);
    } else if (launch.number != its.begun.load(std::memory_order_relaxed)) {
        mean.add(row_seconds, has_waited);
        const bool is_slow = its.mean[1 - best].value() < clearly * row_seconds;
        const int slow = is_slow ? its.slow.load(std::memory_order_relaxed) + 1 : 0;
        its.slow.store(slow, std::memory_order_relaxed);
        if (launch.number > trial_launches && (slow >= too_many || is_beaten(its))) take_over(its, launch.number);
    }
}

bool CrewChoice::may_try(const Class& its, int crew) { return crew == 0 || its.mean[0].waits() > most; }

bool CrewChoice::is_beaten(const Class& its) {
    const int best = its.best.load(std::memory_order_relaxed);
    return its.mean[1 - best].value() < clearly * its.mean[best].value();
}

void CrewChoice::take_over(Class& its, int64_t number) {
    its.best.store(1 - its.best.load(std::memory_order_relaxed), std::memory_order_relaxed);
    begin_run(its, number);
}

void CrewChoice::end_trial(Class& its, int64_t number) {
    is_beaten(its) ? take_over(its, number) : begin_run(its, number);
}

void CrewChoice::begin_run(Class& its, int64_t number) {
    const int best = its.best.load(std::memory_order_relaxed);
    its.slow.store(0, std::memory_order_relaxed);
    // One time slice that was waited for is no reason to do without the first crew for long.
    const bool is_for_now = best == 1;
    its.pause.store(is_for_now ? soonest : std::min(2 * its.pause.load(std::memory_order_relaxed), latest),
                    std::memory_order_relaxed);
    const double ratio = its.mean[1 - best].value() / std::max(its.mean[best].value(), 1e-30);
    const double cost = static_cast<double>(trial_launches) * std::clamp(ratio - 1, 0.0, 100.0);
    const auto cheap = static_cast<int64_t>(cost / most_cost);
    its.begun.store(number + 1, std::memory_order_relaxed);
    its.trial.store(number + std::max(its.pause.load(std::memory_order_relaxed), cheap), std::memory_order_relaxed);
}

}  // namespace normjit::cpu
