// SPDX-License-Identifier: Apache-2.0
// The engine's own threads. They run the phases of a launch together with the caller. Nobody waits for a worker that
// slept through a launch, or that lost its CPU before it began a task: the Job belongs to the pool and outlives the
// launch.
//
// Only one launch at a time has the workers. A caller that finds them busy runs its tasks itself. Launches from several
// threads, or from inside a task, therefore neither wait for each other nor use more threads than there are.
//
// After a fork, the child has no workers, and its callers run all tasks. No other thread may be inside run() during the
// fork.
#pragma once

#include "device/cpu/job.h"
#include "system/fork_gate.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <pthread.h>

namespace normjit::cpu {

class ThreadPool {
  public:
    /// Starts threads - 1 workers, or as many as the system allows.
    static std::unique_ptr<ThreadPool> create(int threads);
    ~ThreadPool();

    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    /// Runs all tasks, and returns when they have returned. Thread safe; allocates nothing. Tasks must not throw.
    void run(const Phases& phases);

    int threads() const { return static_cast<int>(workers_.size()) + 1; }
    /// Says why there are fewer workers than requested; empty if there are enough.
    const std::string& refusal() const { return refusal_; }

  private:
    explicit ThreadPool(int threads);
    void start_workers(int count);
    void wake_some(int64_t tasks);
    void work_until_stopped(int seat);
    void leave(int cpu) const;

    std::vector<pthread_t> workers_;  ///< not std::thread, because the child of a fork could neither join nor drop
                                      ///< those
    std::string refusal_;
    const std::unique_ptr<char[]> memory_;  ///< holds the job
    Job& job_;                              ///< seat 0 belongs to the caller
    const Process process_;
    std::atomic<int> started_{0};                               ///< the number of workers
    alignas(Job::lines_apart) std::atomic<bool> taken_{false};  ///< true while a caller has the workers
    alignas(Job::lines_apart) Bell jobs_;                       ///< rung at the start of each job
};

}  // namespace normjit::cpu
