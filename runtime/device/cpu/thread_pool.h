// SPDX-License-Identifier: Apache-2.0
// The engine's own threads. A job is `count` tasks for the caller and those workers that are awake in time. Each begins
// with a share of its own, the same in every job of as many tasks, so that it finds in its caches what it left there;
// then it takes what is left of the others' shares. Nobody waits for a worker that slept through a job.
//
// One job at a time has the workers. A caller that finds them taken runs its tasks itself, so that calls from several
// threads and from inside a task neither wait for each other nor use more threads than there are.
//
// After a fork the child has no workers; its calls run their tasks on the calling thread. The fork must not happen
// while another thread is inside run().
#pragma once

#include "normjit/status.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <pthread.h>
#include <sys/types.h>

namespace normjit::cpu {

class ThreadPool {
  public:
    using Task = void (*)(void* context, int64_t i);

    /// Starts threads - 1 workers. Fails when the system refuses a thread.
    static Expected<std::unique_ptr<ThreadPool>> create(int threads);
    ~ThreadPool();

    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    /// Calls task(context, i) once for every i in [0, count); returns when all calls have returned. Thread safe,
    /// allocates nothing. Tasks must not throw.
    void run(int64_t count, Task task, void* context);

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

  private:
    struct Job {
        Task task = nullptr;
        void* context = nullptr;
        int64_t count = 0;
    };

    ThreadPool();
    Status start_workers(int count);
    void work_until_stopped(int index);
    void announce(int64_t tasks);
    bool enter();
    void leave();
    void close_and_wait();
    void run_tasks(int index);
    bool claim(int64_t task);

    std::vector<pthread_t> workers_;  ///< not std::thread, which the child of a fork could neither join nor drop
    const pid_t process_;
    std::atomic<bool> stopped_{false};
    alignas(64) std::atomic<bool> taken_{false};  ///< a caller owns job_
    alignas(64) std::atomic<int32_t> jobs_{0};    ///< changes with each job; workers sleep on it
    alignas(64) std::atomic<int32_t> gate_{0};    ///< `open`, plus the number of workers inside the job
    alignas(64) std::atomic<int64_t> next_{0};    ///< the next task of a job with more of them than claimed_ has bits
    static constexpr int64_t most_claimed = 1024;
    alignas(64) std::array<std::atomic<uint64_t>, most_claimed / 64> claimed_{};  ///< a bit for each task
    std::atomic<int> started_{0};                                                 ///< workers
    Job job_;  ///< written while the gate is closed and nobody is inside, read inside
};

}  // namespace normjit::cpu
