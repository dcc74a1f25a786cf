// SPDX-License-Identifier: Apache-2.0
// Work in phases that threads share: a phase is a number of tasks that do not need each other, and begins when all
// tasks of the phase before have returned.
//
// A thread has a seat. Each seat owns a share of every phase, the same whenever the numbers of tasks and seats are the
// same, so that a thread finds in its caches what it left there. A thread runs its own share first, then helps with the
// others. Whoever completes a phase announces the next one. So no thread waits for one that has not come, only for
// tasks that another one has begun, and one thread alone completes the job.
//
// Threads write to few lines that others read:
//   announced   the current phase, with a number that no other phase of the Job has
//   claimed     for each seat: how many tasks of its share are handed out, with the phase's number, so that nobody has
//               to reset it
//   done        how many tasks have returned
// A Job is used again for later work, in the same memory. A thread that comes too late finds every share claimed in the
// name of its phase or of a later one: it runs nothing, and never reads what the launch had on its stack.
#pragma once

#include "device/cpu/waiting.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace normjit::cpu {

struct Phases {
    int64_t count;
    int64_t (*tasks)(const void* context, int64_t phase);  ///< of a phase, any number
    void (*task)(const void* context, int64_t phase, int64_t i);
    const void* context;

    int64_t all_tasks() const;
    /// Tasks of the largest phase: more threads than this find nothing to do.
    int64_t most_tasks() const;
    /// Runs all tasks on the calling thread.
    void run_alone() const;
};

/// Phases whose numbers of tasks and tasks are callables, which must outlive this.
template <class Tasks, class Task>
class PhasesOf : public Phases {
  public:
    PhasesOf(int64_t count, const Tasks& tasks, const Task& task)
        : Phases{count, [](const void* self, int64_t phase) { return of(self).tasks_(phase); },
                 [](const void* self, int64_t phase, int64_t i) { of(self).task_(phase, i); }, this},
          tasks_(tasks),
          task_(task) {}
    PhasesOf(const PhasesOf&) = delete;
    PhasesOf& operator=(const PhasesOf&) = delete;

  private:
    static const PhasesOf& of(const void* self) { return *static_cast<const PhasesOf*>(self); }

    const Tasks& tasks_;
    const Task& task_;
};

class Job {
  public:
    static constexpr size_t lines_apart = 128;  ///< bytes; processors fetch lines in pairs

    /// Bytes that create() needs, at any address.
    static constexpr size_t bytes(int64_t seats) { return (3 + static_cast<size_t>(seats)) * lines_apart; }
    /// Makes a job for `seats` threads in `memory`. It needs no destruction.
    static Job& create(void* memory, int64_t seats);

    /// A copy of what is announced.
    struct Phase {
        int64_t number = 0;
        const Phases* phases = nullptr;
        int64_t phase = 0;
        int64_t tasks = 0;
        int64_t until = 0;  ///< tasks that have returned when the phase is over
        int64_t end = 0;    ///< and when the last phase is
        int cpu = -1;       ///< on which the job began; -1: unknown

        bool is_last() const { return until == end; }
    };

    /// Announces the first phase. The job before must be over.
    void begin(const Phases& phases, int cpu = -1);

    /// Replaces `phase` by the one that is announced. False when that is the same, or is being written.
    bool find_next(Phase& phase) const;
    /// The number of the announced phase.
    int64_t number() const { return announced_.number.load(std::memory_order_acquire); }

    /// Works on `phase`, then on each phase that follows, until no task of the job is left to begin. All threads give
    /// the same number of seats. A thread that has run its share looks at the others' after `restraint`.
    void take_part(Phase& phase, int seat, int seats, std::chrono::nanoseconds restraint);
    /// The same from whichever phase is announced.
    void take_part(int seat, int seats, std::chrono::nanoseconds restraint = {});

    /// True while nobody has begun the share that a seat owns.
    bool is_untouched(const Phase& phase, int seat) const;

    /// Returns when all tasks have returned.
    void wait_until_over();

    /// Announces a phase without tasks: no job will follow. No job may be under way.
    void stop();
    static bool is_stop(const Phase& phase) { return phase.number == stopped; }

  private:
    static constexpr int64_t stopped = -2;  ///< the last number

    struct alignas(lines_apart) Announced {
        std::atomic<int64_t> number{0};  ///< odd while the others change
        std::atomic<const Phases*> phases{nullptr};
        std::atomic<int64_t> phase{0};
        std::atomic<int64_t> tasks{0};
        std::atomic<int64_t> until{0};
        std::atomic<int64_t> end{0};
        std::atomic<int> cpu{-1};
        int most_seats = 0;  ///< shares of a phase at most; constant
    };
    struct alignas(lines_apart) Share {
        std::atomic<int64_t> claimed{0};  ///< a phase's number and a count, see pack()
    };

    explicit Job(int64_t seats) { announced_.most_seats = static_cast<int>(seats); }
    void announce(const Phase& phase);
    void announce_next(Phase phase);
    void work(const Phase& phase, int seat, int seats, std::chrono::nanoseconds restraint);
    void run_share(const Phase& phase, int of, int shares);
    void add_done(const Phase& phase, int64_t tasks);
    Share& share(int seat) { return reinterpret_cast<Share*>(this + 1)[seat]; }
    const Share& share(int seat) const { return reinterpret_cast<const Share*>(this + 1)[seat]; }

    Announced announced_;
    alignas(lines_apart) std::atomic<int64_t> done_{0};  ///< tasks of all jobs
    Bell bell_;                                          ///< at the end of every phase
};

/// A job of one launch, on the launching thread's stack, for threads that have all left it when the launch ends.
class LaunchJob {
  public:
    LaunchJob(const Phases& phases, int seats) : job(Job::create(memory_, std::min(seats, most_seats))) {
        job.begin(phases);
    }

  private:
    static constexpr int most_seats = 64;
    char memory_[Job::bytes(most_seats)];

  public:
    Job& job;
};

}  // namespace normjit::cpu
