// SPDX-License-Identifier: Apache-2.0
// Which of two crews runs a kernel's launches, learned from how long they take. Crew 0 is the threads of an OpenMP
// runtime, which hold the cores of a machine that is theirs: there crew 1 finds no core, and a trial of it costs as many
// times a launch as there are threads. On a machine with other work the launches of crew 0 wait for the last of its
// threads. Crew 1 is tried when most of them do, and only then.
//
// A trial is a few launches with one crew, of which the first does not count: it wakes threads that slept. The faster
// crew has the launches until a trial of the other one says otherwise, or its own launches do: their mean over many,
// since a launch that waits for a time slice of the scheduler takes a hundred times as long, or several in a row do.
// With every trial the pause to the next becomes longer, and it is the longer the slower the other crew was.
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
    struct Launch {
        int crew;  ///< 0 or 1
        int64_t rows;
        int64_t number;  ///< in its class
    };

    Launch next(int64_t rows);

    /// How long it took, and for how much of that its caller had nothing to do but wait for the others.
    void note(const Launch& launch, double seconds, double waited = 0);

  private:
    static constexpr int64_t trial_launches = 3;
    static constexpr int window = 256;                    ///< launches that a mean is over
    static constexpr int too_many = 6;                    ///< launches in a row, slower than the other crew's mean
    static constexpr double clearly = 0.9;                ///< so much of its time makes the other crew the better one
    static constexpr int64_t soonest = 32, latest = 512;  ///< launches from one trial to the next
    /// A trial of a crew that is slow costs this share of the launches' time at most.
    static constexpr double most_cost = 0.1;
    /// A launch waits if its caller does for this share of the time; most launches do if this share of them does.
    static constexpr double most = 0.5;
    static constexpr int recent = 32;  ///< launches that this share is of

    class Mean {
      public:
        void begin() { samples_.store(0, std::memory_order_relaxed); }
        void add(double sample, bool waited) {
            const int count = std::min(samples_.load(std::memory_order_relaxed) + 1, window);
            add_to(value_, sample, count);
            add_to(waits_, waited ? 1 : 0, std::min(count, recent));
            samples_.store(count, std::memory_order_relaxed);
        }
        double value() const { return value_.load(std::memory_order_relaxed); }
        double waits() const { return waits_.load(std::memory_order_relaxed); }

      private:
        static void add_to(std::atomic<double>& mean, double sample, int count) {
            const double old = count == 1 ? 0 : mean.load(std::memory_order_relaxed);
            mean.store(old + (sample - old) / count, std::memory_order_relaxed);
        }

        std::atomic<double> value_ = 1e300;  ///< nothing is known
        std::atomic<double> waits_ = 0;      ///< the share of launches that waited
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

    static bool may_try(const Class& its, int crew);
    static bool is_beaten(const Class& its);
    static void take_over(Class& its, int64_t number);
    static void end_trial(Class& its, int64_t number);
    /// Begins a row of launches with the best crew.
    static void begin_run(Class& its, int64_t number);

    Class classes_[classes];
};

}  // namespace normjit::cpu
