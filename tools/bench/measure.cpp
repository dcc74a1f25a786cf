// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include "kernel/timed_problem.h"
#include "support/try.h"

#include <algorithm>
#include <chrono>

namespace normjit::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// How long to work before each sample, so that sleeping threads wake up and caches get their data back. Longer work
/// changes nothing.
constexpr double settling = 100e-6;

template <class F>
double seconds_of(int repeats, F&& work) {
    auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) work();
    return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

template <class F>
double settled_seconds_of(int repeats, double once, F&& work) {
    for (int i = static_cast<int>(std::min(settling / std::max(once, 1e-9), 1000.0)); i > 0; --i) work();
    return seconds_of(repeats, work);
}

struct Ceiling {
    const StreamMethod* method = nullptr;
    std::vector<double> seconds;
    std::vector<double> shares;  ///< the shares of the ceiling that the launches right after it reached
};

/// Returns the fastest method with one thread and the fastest with all threads. On a machine that does other work
/// either may turn out to be faster, so both are kept unless one is far behind. The methods run between launches, as
/// they will later, because a thread that has slept is slow to start.
std::vector<Ceiling> fastest_methods(Team& team, const NextTraffic& traffic, int repeats,
                                     const std::function<Status()>& launch) {
    constexpr int rounds = 5;
    constexpr double far_behind = 2;
    const StreamMethod* best[2] = {};
    double best_seconds[2] = {};
    for (const StreamMethod& method : stream_methods()) {
        std::vector<double> seconds;
        for (int i = 0; i < rounds; ++i) {
            static_cast<void>(launch());  // it has succeeded before
            seconds.push_back(seconds_of(repeats, [&] { stream(team, traffic(), method); }));
        }
        double median = sample_of(seconds).median;
        const int kind = method.one_thread ? 1 : 0;
        if (best[kind] && median >= best_seconds[kind]) continue;
        best[kind] = &method;
        best_seconds[kind] = median;
    }
    std::vector<Ceiling> ceilings;
    for (int kind : {0, 1}) {
        if (best[kind] && best_seconds[kind] < far_behind * best_seconds[1 - kind])
            ceilings.push_back({best[kind], {}, {}});
    }
    return ceilings;
}

/// Launches until caches, page tables and clock rates have settled. Returns the seconds of one launch.
Expected<double> warm_up(const std::function<Status()>& launch) {
    constexpr double enough = 0.02;
    double total = 0, last = 0;
    for (int i = 0; i < 2 || (total < enough && i < 1000); ++i) {
        Status status;
        last = seconds_of(1, [&] { status = launch(); });
        NORMJIT_RETURN_IF_ERROR(status);
        total += last;
    }
    return last;
}

}  // namespace

Sample sample_of(std::vector<double>& seconds) {
    if (seconds.empty()) return {};
    std::sort(seconds.begin(), seconds.end());
    auto at = [&](size_t percent) { return seconds[(seconds.size() - 1) * percent / 100]; };
    return {.median = at(50), .p20 = at(20), .p80 = at(80)};
}

Expected<Measurement> measure(Team& team, const NextTraffic& traffic, const std::function<Status()>& launch,
                              const MeasureOptions& options) {
    NORMJIT_TRY(double once, warm_up(launch));
    Measurement result;
    result.traffic_bytes = traffic().bytes();
    const auto repeats = static_cast<int>(std::clamp(shortest_sample / std::max(once, 1e-9), 1.0, 1000.0));
    result.launches_per_sample = repeats;
    std::vector<Ceiling> ceilings;
    if (result.traffic_bytes >= min_ceiling_bytes) {
        ceilings = fastest_methods(team, traffic, repeats, launch);
    }
    std::vector<double> launches;
    double spent = 0;
    for (int i = 0; i < options.min_samples || (spent < options.seconds && i < options.max_samples); ++i) {
        for (Ceiling& ceiling : ceilings) {
            ceiling.seconds.push_back(
                settled_seconds_of(repeats, once, [&] { stream(team, traffic(), *ceiling.method); }));
        }
        Status status;
        launches.push_back(settled_seconds_of(repeats, once, [&] {
            if (status.ok()) status = launch();
        }));
        NORMJIT_RETURN_IF_ERROR(status);
        for (Ceiling& ceiling : ceilings) ceiling.shares.push_back(ceiling.seconds.back() / launches.back());
        spent += launches.back() * repeats;
    }
    result.samples = static_cast<int>(launches.size());
    result.launch = sample_of(launches);
    for (Ceiling& ceiling : ceilings) {
        Sample sample = sample_of(ceiling.seconds);
        if (result.ceiling.median >= 0 && sample.median >= result.ceiling.median) continue;
        result.ceiling = sample;
        result.method = ceiling.method->name;
        result.share = sample_of(ceiling.shares).median;
    }
    return result;
}

}  // namespace normjit::bench
