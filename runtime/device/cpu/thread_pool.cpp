// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/thread_pool.h"

#include "system/no_cancellation.h"
#include "system/own_thread.h"

#include <algorithm>
#include <cstring>

#include <sched.h>
#include <unistd.h>

namespace normjit::cpu {

/// How many sleepers each thread wakes. Waking one takes 1 us, so threads that are awake wake others (NOTES N-406).
constexpr int woken_by_one = 4;

ThreadPool::ThreadPool(int threads)
    : memory_(std::make_unique<char[]>(Job::bytes(threads))),
      job_(Job::create(memory_.get(), threads)),
      process_(this_process()) {}

std::unique_ptr<ThreadPool> ThreadPool::create(int threads) {
    std::unique_ptr<ThreadPool> pool(new ThreadPool(threads));
    pool->start_workers(threads - 1);
    return pool;
}

void ThreadPool::start_workers(int count) {
    const auto work = [](void* pool) -> void* {
        auto* self = static_cast<ThreadPool*>(pool);
        self->work_until_stopped(self->started_.fetch_add(1, std::memory_order_relaxed) + 1);
        return nullptr;
    };
    workers_.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
        pthread_t worker;
        if (const int error = start_own_thread(worker, work, this); error != 0) {
            refusal_ = std::strerror(error);
            return;
        }
        workers_.push_back(worker);
    }
}

ThreadPool::~ThreadPool() {
    if (this_process() != process_) return;  // this process is the child of a fork, where there are no workers
    job_.stop();
    jobs_.ring();
    const NoCancellation inside;
    for (const pthread_t worker : workers_) pthread_join(worker, nullptr);
}

void ThreadPool::run(const Phases& phases) {
    const int64_t most = phases.most_tasks();
    if (most <= 1 || workers_.empty() || taken_.exchange(true, std::memory_order_acquire)) return phases.run_alone();
    Job::Phase phase = job_.begin(phases, sched_getcpu());
    wake_some(most);
    job_.take_part(phase, 0, threads(), {});
    job_.wait_until_over(phase);
    taken_.store(false, std::memory_order_release);
}

/// Wakes enough sleepers for `tasks` tasks.
void ThreadPool::wake_some(int64_t tasks) {
    const int sleepers = jobs_.sleepers();
    if (sleepers > 0 && threads() - sleepers < tasks) jobs_.ring(woken_by_one);
}

void ThreadPool::work_until_stopped(int seat) {
    for (Job::Phase phase;;) {
        if (!phase.is_stop()) jobs_.wait([&] { return job_.find_next(phase); });
        if (phase.is_stop()) return;
        if (sched_getcpu() == phase.cpu) leave(static_cast<int>(phase.cpu));
        if (job_.is_untouched(phase, seat)) wake_some(phase.tasks);
        job_.take_part(phase, seat, threads(), restraint);
    }
}

/// Moves this thread to another CPU; afterwards it may run on any of its CPUs again. Otherwise, a caller that never
/// sleeps would keep a worker on its CPU waiting until the scheduler's next tick, milliseconds after the job. The
/// scheduler does not move that worker, because it runs only for microseconds.
void ThreadPool::leave(int cpu) const {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < threads()) return;
    cpu_set_t others = allowed;
    CPU_CLR(static_cast<size_t>(cpu), &others);
    if (sched_setaffinity(0, sizeof(others), &others) == 0) sched_setaffinity(0, sizeof(allowed), &allowed);
}

}  // namespace normjit::cpu
