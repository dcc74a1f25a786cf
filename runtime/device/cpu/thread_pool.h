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
//
// A job costs little because its threads write nothing that another one writes, too, as long as nobody steals:
//   caller   announced_: the job and its number, which all workers look at
//   each     claimed: how many tasks of its share are handed out, with the job's number, so that nobody has to reset it
//   worker   done: how many tasks it has done, with the job's number. The caller adds them up, which tells it that all
//            tasks are done without asking who took part
// A worker that comes too late finds every share claimed in this job's name or a later one's, and takes nothing.
#pragma once

#include "device/cpu/waiting.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <pthread.h>
#include <sys/types.h>

namespace normjit::cpu {

class ThreadPool {
  public:
    using Task = void (*)(void* context, int64_t i);

    /// Starts threads - 1 workers, or as many as the system gives.
    static std::unique_ptr<ThreadPool> create(int threads);
    ~ThreadPool();

    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    /// Calls task(context, i) once for every i in [0, count); returns when all calls have returned. Thread safe,
    /// allocates nothing. Tasks must not throw.
    void run(int64_t count, Task task, void* context);

    int threads() const { return static_cast<int>(workers_.size()) + 1; }
    /// Why these are fewer than were asked for; empty when they are not.
    const std::string& refusal() const { return refusal_; }

  private:
    static constexpr size_t lines_apart = 128;  ///< bytes; processors fetch lines in pairs

    /// Tasks [first, first + count) of a call.
    struct Job {
        int64_t number;  ///< even, higher than that of the job before
        Task task;
        void* context;
        int64_t first;
        int64_t count;
        int cpu;  ///< on which the caller began it
    };
    /// A Job that its readers copy while it may be replaced: number is odd meanwhile.
    struct alignas(lines_apart) Announced {
        std::atomic<int64_t> number{0};
        std::atomic<Task> task{nullptr};
        std::atomic<void*> context{nullptr};
        std::atomic<int64_t> first{0};
        std::atomic<int64_t> count{0};
        std::atomic<int> cpu{-1};
    };
    /// A thread's. Both are a job's number and a count of tasks, see pack().
    struct alignas(lines_apart) Share {
        std::atomic<int64_t> claimed{0};
        std::atomic<int64_t> done{0};  ///< written by this thread only
    };

    explicit ThreadPool(int threads);
    void start_workers(int count);
    void run_job(const Job& job);
    void announce(const Job& job);
    void wake_some(const Job& job);
    void wait_for_workers(const Job& job, int64_t done_by_caller);
    int64_t done_by_workers(const Job& job) const;
    void work_until_stopped(int index);
    bool next_job(Job& job);
    bool copy_job(Job& job) const;
    void sleep(int64_t last_job);
    void work(const Job& job, int index);
    void leave(int cpu) const;
    void report(const Job& job, int index, int64_t done);
    int64_t run_share(const Job& job, int of);
    static int64_t claim(std::atomic<int64_t>& claimed, int64_t number, int64_t size);

    std::vector<pthread_t> workers_;  ///< not std::thread, which the child of a fork could neither join nor drop
    std::string refusal_;
    const std::unique_ptr<Share[]> shares_;  ///< of all threads, the caller's first
    const pid_t process_;
    std::atomic<int> started_{0};  ///< workers
    Announced announced_;
    alignas(lines_apart) std::atomic<bool> taken_{false};  ///< a caller has the workers
    int64_t last_number_ = 0;                              ///< the caller's that has them
    alignas(lines_apart) std::atomic<int> sleepers_{0};    ///< workers that sleep, or are about to
    std::atomic<int32_t> bell_{0};                         ///< they sleep on it
    alignas(lines_apart) Bell reports_;                    ///< of tasks done: the caller waits for them
};

}  // namespace normjit::cpu
