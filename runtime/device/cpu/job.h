// SPDX-License-Identifier: Apache-2.0
// Work in phases that threads share. A phase is a number of independent tasks. It begins when all tasks of the previous
// phase have returned.
//
// Each thread has a seat. A seat owns a share of every phase, the same share whenever the numbers of tasks and seats
// are the same, so that a thread finds its earlier data in its caches. A thread runs its own share first, then helps
// with the others. Whoever completes a phase announces the next one. A thread therefore never waits for a thread that
// has not arrived, only for tasks that others have begun, and a single thread can complete the job.
//
// Threads write to few cache lines that others read:
//   announced   the current phase, with a number that no other phase of the Job has
//   claimed     for each seat, how many parts of its share have been handed out, with the number of the phase, so that
//               nobody has to reset it
//   done        how many tasks have returned
// A Job is reused for later launches. A thread that comes too late finds every share claimed under the number of its
// phase or of a later one. It runs nothing, and never reads what the launch had on its stack.
#pragma once

#include "device/cpu/waiting.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace normjit::cpu {

struct Phases {
    int64_t count;       ///< the number of phases, at least 1
    int64_t tasks;       ///< tasks of each phase except the last
    int64_t last_tasks;  ///< tasks of the last phase
    void (*task)(const void* context, int64_t phase, int64_t i);
    const void* context;

    int64_t tasks_of(int64_t phase) const { return phase + 1 < count ? tasks : last_tasks; }
    int64_t all_tasks() const { return (count - 1) * tasks + last_tasks; }
    /// Returns the most threads that can find a task.
    int64_t most_tasks() const { return count > 1 ? std::max(tasks, last_tasks) : last_tasks; }
    /// Runs all tasks on the calling thread.
    void run_alone() const;
};

/// Makes phases whose tasks are calls of task(phase, i). `task` may be any callable, and must outlive the phases.
template <class Task>
Phases phases_of(int64_t count, int64_t tasks, int64_t last_tasks, const Task& task) {
    const auto call = [](const void* self, int64_t phase, int64_t i) { (*static_cast<const Task*>(self))(phase, i); };
    return {count, tasks, last_tasks, call, &task};
}

class Job {
  public:
    static constexpr size_t lines_apart = 128;  ///< bytes; processors fetch lines in pairs

    /// Returns how many bytes create() needs, at any address.
    static constexpr size_t bytes(int64_t seats) { return (3 + static_cast<size_t>(seats)) * lines_apart; }
    /// Makes a job in `memory`. If there are more threads than `seats`, some of them share a seat. A job needs no
    /// destruction.
    static Job& create(void* memory, int64_t seats);

    /// The announced phase.
    struct Phase {
        int64_t number = 0;  ///< always even
        const Phases* phases = nullptr;
        int64_t index = 0;
        int64_t tasks = 0;
        int64_t until = 0;  ///< how many tasks will have returned when the phase is over ...
        int64_t end = 0;    ///< ... and when the job is over
        int64_t cpu = -1;   ///< the CPU on which the job began; -1 if unknown

        bool is_last() const { return until == end; }
        bool is_stop() const { return number == stopped; }
    };

    /// Announces the first phase. `phases` must live until the job is over, and the previous job must be over.
    Phase begin(const Phases& phases, int cpu = -1);

    /// Copies the announced phase. Returns false if it is `phase` itself, or is being written.
    bool find_next(Phase& phase) const;
    /// Returns the number of the announced phase.
    int64_t number() const { return announced_[0].load(std::memory_order_acquire); }

    /// Works on `phase` and on each phase that follows, until every task of the job has been begun. All threads must
    /// pass the same number of seats. A thread that has run its own share looks at the others after `delay`.
    void take_part(Phase& phase, int seat, int seats, std::chrono::nanoseconds delay);
    /// Does the same, starting with the announced phase.
    void take_part(int seat, int seats, std::chrono::nanoseconds delay = {});

    /// True if nobody has begun the share of this seat.
    bool is_untouched(const Phase& phase, int seat) const;

    /// Waits until all tasks of the job that `phase` belongs to have returned.
    void wait_until_over(const Phase& phase);

    /// Announces that there will be no more jobs. The previous job must be over.
    void stop();

  private:
    static constexpr int64_t stopped = -2;  ///< the number of the phase that stop() announces

    struct alignas(lines_apart) Share {
        std::atomic<int64_t> claimed{0};  ///< the number of a phase and a count: see pack()
    };

    explicit Job(int seats) : most_shares_(seats) {}
    void announce(const Phase& phase);
    void work(const Phase& phase, int seat, int seats, std::chrono::nanoseconds delay);
    void run_share(const Phase& phase, int of, int shares);
    void add_done(const Phase& phase, int64_t tasks);
    Share* shares() const { return reinterpret_cast<Share*>(const_cast<Job*>(this) + 1); }

    alignas(lines_apart) std::array<std::atomic<int64_t>, sizeof(Phase) / sizeof(int64_t)> announced_{};  ///< a Phase
    const int most_shares_;
    alignas(lines_apart) std::atomic<int64_t> done_{0};  ///< tasks of all jobs
    Bell bell_;                                          ///< rung at the end of every phase
};

/// The job of one launch, on the stack of the launching thread. All threads must leave it before the launch ends.
class LaunchJob {
  public:
    LaunchJob(const Phases& phases, int seats) : job_(Job::create(memory_, std::min(seats, most_shares))) {
        job_.begin(phases);
    }
    LaunchJob(const LaunchJob&) = delete;
    LaunchJob& operator=(const LaunchJob&) = delete;

    void take_part(int seat, int seats) { job_.take_part(seat, seats); }

  private:
    static constexpr int most_shares = 64;
    char memory_[Job::bytes(most_shares)];
    Job& job_;
};

}  // namespace normjit::cpu
