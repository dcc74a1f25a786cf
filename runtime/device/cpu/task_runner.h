// SPDX-License-Identifier: Apache-2.0
// Runs the tasks of one launch, phase by phase, on the threads that are chosen for it.
#pragma once

#include "device/cpu/threads.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace normjit::cpu {

class TaskRunner {
  public:
    TaskRunner(const Threads& threads, CrewChoice* choice, int64_t rows, bool pays_to_share)
        : threads_(threads), turn_(threads, choice, rows, pays_to_share) {}

    bool is_shared() const { return turn_.crew != Crew::alone; }
    /// Threads that tasks are cut for.
    int count() const { return threads_.count(); }
    /// Of all that has run.
    Status take_status() { return std::move(status_); }

    /// task(phase, i) for every i below tasks(phase), phase by phase. OpenMP's threads go through all phases in one
    /// region, whose end is what costs most.
    template <class Tasks, class Task>
    void run_phases(int64_t phases, const Tasks& tasks, const Task& task) {
        int64_t most = 0;
        for (int64_t phase = 0; phase < phases && most <= 1; ++phase) most = std::max(most, tasks(phase));
        if (turn_.crew != Crew::openmp || most <= 1) {
            for (int64_t phase = 0; phase < phases; ++phase) {
                run(tasks(phase), [&](int64_t i) { task(phase, i); });
            }
            return;
        }
        struct Both {
            const Tasks& tasks;
            const Task& task;
        } both{tasks, task};
        const auto count = [](void* context, int64_t phase) { return static_cast<Both*>(context)->tasks(phase); };
        const auto call = [](void* context, int64_t phase, int64_t i) { static_cast<Both*>(context)->task(phase, i); };
        turn_.waited += threads_.run_in_region({phases, count, call, &both});
    }

  private:
    template <class Task>
    void run(int64_t tasks, const Task& task) {
        if (tasks <= 1 || !is_shared()) {
            for (int64_t i = 0; i < tasks; ++i) task(i);
            return;
        }
        if (turn_.crew == Crew::callers) return run_on_callers(tasks, task);
        const auto call = [](void* context, int64_t i) { (*static_cast<const Task*>(context))(i); };
        threads_.run(turn_.crew, tasks, call, const_cast<Task*>(&task));
    }

    /// Counts what has run: the caller's function may be wrong.
    template <class Task>
    void run_on_callers(int64_t tasks, const Task& task) {
        struct Counted {
            const Task& task;
            std::atomic<int64_t> ran{0};
        } counted{task};
        const auto call = [](void* context, int64_t i) {
            auto& [one, ran] = *static_cast<Counted*>(context);
            one(i);
            ran.fetch_add(1, std::memory_order_relaxed);
        };
        threads_.run(turn_.crew, tasks, call, &counted);
        const int64_t ran = counted.ran.load(std::memory_order_relaxed);
        if (ran == tasks || !status_.ok()) return;
        status_ = failed(ran < tasks ? fmt::format("launch: parallel_for returned before all tasks had run, {} of {}; "
                                                   "the outputs are not complete",
                                                   ran, tasks)
                                     : fmt::format("launch: parallel_for ran tasks more than once, {} times for {}; "
                                                   "the outputs may be wrong",
                                                   ran, tasks));
    }

    const Threads& threads_;
    CrewTurn turn_;
    Status status_;  ///< written between tasks only
};

}  // namespace normjit::cpu
