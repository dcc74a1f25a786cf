// SPDX-License-Identifier: Apache-2.0
// Which of two crews a kernel's launches are faster with, learned from how long they take. (The threads of an OpenMP
// runtime hold the cores of a machine that is theirs, while on one with other work a launch waits for the last of
// them.)
//
// A trial is a few launches with one crew, of which the first does not count: it wakes threads that slept. Both are
// tried to begin with, or the second one only once launches mostly wait; then the faster one has the launches, until a
// trial of the other one says otherwise, or its own launches: their mean over many, since now and then one waits for a
// time slice of the scheduler and takes a hundred times as long, or several in a row. With every trial the pause to the
// next becomes longer, and it is the longer the slower the other crew was.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

namespace normjit::cpu {

/// Launches with as many rows, but for a factor of 2, are of one class: how long one took says how long the next will.
/// Thread safe; of launches at the same time some may not be learned from.
class CrewChoice {
  public:
    /// When crew 1 is tried. after_waits: when launches of crew 0 mostly wait, for a crew that is never the faster one
    /// on a machine without other work, where a trial would cost as many times a launch as there are threads.
    enum class Trials : uint8_t { always, after_waits };

    explicit CrewChoice(Trials trials = Trials::always) : trials_(trials) {}

    struct Launch {
        int crew;  ///< 0 or 1
        int64_t rows;
        int64_t number;  ///< in its class
    };

    Launch next(int64_t rows) {
        Class& its = class_of(rows);
        const int64_t number = its.number.fetch_add(1, std::memory_order_relaxed);
        const int best = its.best.load(std::memory_order_relaxed);
        if (number < trial_launches) return {0, rows, number};
        if (number < its.trial.load(std::memory_order_relaxed)) return {best, rows, number};
        if (may_try(its, 1 - best)) return {1 - best, rows, number};
        its.trial.store(number + 1, std::memory_order_relaxed);
        return {best, rows, number};
    }

    /// How long it took, and for how much of that its caller had nothing to do but wait for the others.
    void note(const Launch& launch, double seconds, double waited = 0) {
        Class& its = class_of(launch.rows);
        const int64_t trial = its.trial.load(std::memory_order_relaxed);
        const auto rows = static_cast<double>(std::max<int64_t>(launch.rows, 1));
        const double row_seconds = seconds / rows, row_waited = waited / rows;
        const int best = its.best.load(std::memory_order_relaxed);
        Mean& mean = its.mean[launch.crew];
        if (launch.crew != best) {
            if (launch.number == trial) mean.begin();
            if (launch.number > trial) mean.add(row_seconds, row_waited, window);
            if (launch.number >= trial + trial_launches - 1) end_trial(its, launch.number);
        } else if (launch.number != its.begun.load(std::memory_order_relaxed)) {
            mean.add(row_seconds, row_waited, window);
            const bool is_slow = its.mean[1 - best].value() < clearly * row_seconds;
            const int slow = is_slow ? its.slow.load(std::memory_order_relaxed) + 1 : 0;
            its.slow.store(slow, std::memory_order_relaxed);
            if (launch.number > trial_launches && (slow >= too_many || is_beaten(its))) take_over(its, launch.number);
        }
    }

  private:
    static constexpr int64_t trial_launches = 3;
    static constexpr int window = 256;                    ///< launches that a mean is over
    static constexpr int too_many = 6;                    ///< launches in a row, slower than the other crew's mean
    static constexpr double clearly = 0.9;                ///< so much of its time makes the other crew the better one
    static constexpr int64_t soonest = 32, latest = 512;  ///< launches from one trial to the next
    /// A trial of a crew that is slow costs this share of the launches' time at most.
    static constexpr double most_cost = 0.1;
    /// This share of the launches' time, and they mostly wait.
    static constexpr double much = 0.5;

    class Mean {
      public:
        void begin() { samples_.store(0, std::memory_order_relaxed); }
        void add(double sample, double waited, int most) {
            const int count = std::min(samples_.load(std::memory_order_relaxed) + 1, most);
            add_to(value_, sample, count);
            add_to(waited_, waited, count);
            samples_.store(count, std::memory_order_relaxed);
        }
        double value() const { return value_.load(std::memory_order_relaxed); }
        double waited() const { return waited_.load(std::memory_order_relaxed); }

      private:
        static void add_to(std::atomic<double>& mean, double sample, int count) {
            const double old = count == 1 ? 0 : mean.load(std::memory_order_relaxed);
            mean.store(old + (sample - old) / count, std::memory_order_relaxed);
        }

        std::atomic<double> value_ = 1e300;  ///< nothing is known
        std::atomic<double> waited_ = 0;
        std::atomic<int> samples_ = 0;
    };
    struct Class {
        std::atomic<int64_t> number = 0;
        std::atomic<int> best = 0;
        std::atomic<int64_t> begun = 0;               ///< the number of the first launch that the best one has in a row
        std::atomic<int64_t> trial = trial_launches;  ///< that of the first launch of the next trial
        std::atomic<int64_t> pause = soonest / 2;     ///< from the trial before to that
        std::atomic<int> slow = 0;                    ///< of the last launches with the best one
        Mean mean[2];
    };
    static constexpr int classes = 24;  ///< the last: 2^22 rows and more

    Class& class_of(int64_t rows) {
        const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(rows, 0))));
        return classes_[std::min(bits, classes - 1)];
    }

    bool may_try(const Class& its, int crew) const {
        const Mean& first = its.mean[0];
        return trials_ == Trials::always || crew == 0 || first.waited() > much * first.value();
    }

    static bool is_beaten(const Class& its) {
        const int best = its.best.load(std::memory_order_relaxed);
        return its.mean[1 - best].value() < clearly * its.mean[best].value();
    }

    void take_over(Class& its, int64_t number) const {
        its.best.store(1 - its.best.load(std::memory_order_relaxed), std::memory_order_relaxed);
        begin_run(its, number);
    }

    void end_trial(Class& its, int64_t number) const {
        is_beaten(its) ? take_over(its, number) : begin_run(its, number);
    }

    /// Of launches with the best crew.
    void begin_run(Class& its, int64_t number) const {
        const int best = its.best.load(std::memory_order_relaxed);
        its.slow.store(0, std::memory_order_relaxed);
        // One time slice that was waited for is no reason to do without the first crew for long.
        const bool is_for_now = trials_ == Trials::after_waits && best == 1;
        its.pause.store(is_for_now ? soonest : std::min(2 * its.pause.load(std::memory_order_relaxed), latest),
                        std::memory_order_relaxed);
        const double ratio = its.mean[1 - best].value() / std::max(its.mean[best].value(), 1e-30);
        const double cost = static_cast<double>(trial_launches) * std::clamp(ratio - 1, 0.0, 100.0);
        const auto cheap = static_cast<int64_t>(cost / most_cost);
        its.begun.store(number + 1, std::memory_order_relaxed);
        its.trial.store(number + std::max(its.pause.load(std::memory_order_relaxed), cheap), std::memory_order_relaxed);
    }

    const Trials trials_;
    Class classes_[classes];
};

}  // namespace normjit::cpu
