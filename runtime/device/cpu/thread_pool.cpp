// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/thread_pool.h"

#include "support/try.h"

#include <cstring>

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

namespace normjit::cpu {

namespace {

constexpr int32_t open = 1 << 30;

/// Pauses before sleeping: 10 to 30 us, what a futex wake costs. Launches in quick succession then find the workers
/// awake.
constexpr int spins = 500;

/// Tells the processor that this loop waits.
void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

/// Returns once `word` is not `value`.
void wait_while(const std::atomic<int32_t>& word, int32_t value) {
    for (int i = 0; i < spins; ++i) {
        if (word.load(std::memory_order_acquire) != value) return;
        relax();
    }
    word.wait(value, std::memory_order_acquire);
}

/// Signals go to the threads of the program, never to workers.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

}  // namespace

ThreadPool::ThreadPool() : process_(getpid()) {}

Expected<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
    std::unique_ptr<ThreadPool> pool(new ThreadPool);
    NORMJIT_RETURN_IF_ERROR(pool->start_workers(threads - 1));
    return pool;
}

Status ThreadPool::start_workers(int count) {
    const SignalsBlocked blocked;
    const auto work = [](void* pool) -> void* {
        auto* self = static_cast<ThreadPool*>(pool);
        self->work_until_stopped(self->started_.fetch_add(1, std::memory_order_relaxed) + 1);
        return nullptr;
    };
    workers_.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
        pthread_t worker;
        if (const int error = pthread_create(&worker, nullptr, work, this); error != 0) {
            return failed(fmt::format("engine: starting thread {} of {}: {}", i + 2, count + 1, std::strerror(error)));
        }
        workers_.push_back(worker);
    }
    return {};
}

ThreadPool::~ThreadPool() {
    if (getpid() != process_) return;  // the child of a fork: there are no workers
    stopped_.store(true, std::memory_order_relaxed);
    jobs_.fetch_add(1, std::memory_order_release);
    jobs_.notify_all();
    for (const pthread_t worker : workers_) pthread_join(worker, nullptr);
}

void ThreadPool::run(int64_t count, Task task, void* context) {
    const bool alone = count <= 1 || workers_.empty() || taken_.exchange(true, std::memory_order_acquire);
    if (alone) {
        for (int64_t i = 0; i < count; ++i) task(context, i);
        return;
    }
    job_ = {task, context, count};
    next_.store(0, std::memory_order_relaxed);
    for (size_t i = 0; i < claimed_.size() && static_cast<int64_t>(i) * 64 < count; ++i) {
        claimed_[i].store(0, std::memory_order_relaxed);
    }
    announce(count);
    run_tasks(0);
    close_and_wait();
    taken_.store(false, std::memory_order_release);
}

/// Opens the gate and wakes as many workers as there are tasks left for.
void ThreadPool::announce(int64_t tasks) {
    gate_.store(open, std::memory_order_release);
    jobs_.fetch_add(1, std::memory_order_release);
    const auto workers = static_cast<int64_t>(workers_.size());
    if (tasks > workers) {
        jobs_.notify_all();
    } else {
        for (int64_t i = 1; i < tasks; ++i) jobs_.notify_one();
    }
}

/// Whether the task was nobody's yet.
bool ThreadPool::claim(int64_t task) {
    std::atomic<uint64_t>& word = claimed_[static_cast<size_t>(task / 64)];
    const uint64_t bit = uint64_t{1} << task % 64;
    return (word.load(std::memory_order_relaxed) & bit) == 0 &&
           (word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

void ThreadPool::run_tasks(int index) {
    const Job job = job_;
    if (job.count <= most_claimed) {
        const int64_t own = index * job.count / threads();
        for (int64_t i = 0; i < job.count; ++i) {
            const int64_t task = own + i < job.count ? own + i : own + i - job.count;
            if (claim(task)) job.task(job.context, task);
        }
        return;
    }
    for (;;) {
        const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
        if (i >= job.count) return;
        job.task(job.context, i);
    }
}

/// All tasks are handed out: keeps late workers out, waits for those that still run theirs.
void ThreadPool::close_and_wait() {
    int32_t inside = gate_.fetch_sub(open, std::memory_order_acq_rel) - open;
    while (inside != 0) {
        wait_while(gate_, inside);
        inside = gate_.load(std::memory_order_acquire);
    }
}

void ThreadPool::work_until_stopped(int index) {
    int32_t seen = 0;
    for (;;) {
        wait_while(jobs_, seen);
        seen = jobs_.load(std::memory_order_acquire);
        if (stopped_.load(std::memory_order_relaxed)) return;
        if (!enter()) continue;
        run_tasks(index);
        leave();
    }
}

/// Whether the job still takes workers; then the caller waits for this one to leave.
bool ThreadPool::enter() {
    int32_t gate = gate_.load(std::memory_order_relaxed);
    while (gate >= open) {
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

void ThreadPool::leave() {
    if (gate_.fetch_sub(1, std::memory_order_release) == 1) gate_.notify_one();
}

}  // namespace normjit::cpu
