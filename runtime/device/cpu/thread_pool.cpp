// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/thread_pool.h"

#include "no_cancellation.h"
#include "own_thread.h"

#include <algorithm>
#include <cstring>

#include <sched.h>
#include <unistd.h>

namespace normjit::cpu {

namespace {

/// How many sleepers each thread wakes. 16 threads of a Xeon that have slept for 1 ms, us until an empty job is over,
/// and what four tasks of 5 us a thread take beyond those 20, 2026-11-21: one 7, 131; two 6, 55; four 7, 39; all
/// 15, 33.
constexpr int64_t woken_by_one = 4;

constexpr int64_t stop = -2;  ///< a job's number

constexpr int count_bits = 16;
constexpr int64_t most_tasks = (int64_t{1} << count_bits) - 1;  ///< of a job

/// Numbers run out after 2^47 jobs.
constexpr int64_t pack(int64_t number, int64_t tasks) { return number << count_bits | tasks; }
constexpr int64_t number_in(int64_t packed) { return packed >> count_bits; }
constexpr int64_t tasks_in(int64_t packed) { return packed & most_tasks; }

}  // namespace

ThreadPool::ThreadPool(int threads)
    : shares_(std::make_unique<Share[]>(static_cast<size_t>(threads))), process_(getpid()) {}

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
    if (getpid() != process_) return;  // the child of a fork: there are no workers
    announced_.number.store(stop, std::memory_order_release);
    bell_.fetch_add(1, std::memory_order_release);
    bell_.notify_all();
    const NoCancellation inside;
    for (const pthread_t worker : workers_) pthread_join(worker, nullptr);
}

void ThreadPool::run(int64_t count, Task task, void* context) {
    const bool alone = count <= 1 || workers_.empty() || taken_.exchange(true, std::memory_order_acquire);
    if (alone) {
        for (int64_t i = 0; i < count; ++i) task(context, i);
        return;
    }
    for (int64_t first = 0; first < count; first += most_tasks) {
        run_job({last_number_ += 2, task, context, first, std::min(count - first, most_tasks), sched_getcpu()});
    }
    taken_.store(false, std::memory_order_release);
}

// ---- the caller

void ThreadPool::run_job(const Job& job) {
    announce(job);
    wake_some(job);
    int64_t done = 0;
    for (int of = 0; of < threads(); ++of) done += run_share(job, of);
    wait_for_workers(job, done);
}

/// Each part is released, so that who reads a part of a later job finds the odd number as well.
void ThreadPool::announce(const Job& job) {
    announced_.number.store(job.number - 1, std::memory_order_relaxed);
    announced_.task.store(job.task, std::memory_order_release);
    announced_.context.store(job.context, std::memory_order_release);
    announced_.first.store(job.first, std::memory_order_release);
    announced_.count.store(job.count, std::memory_order_release);
    announced_.cpu.store(job.cpu, std::memory_order_release);
    announced_.number.store(job.number, std::memory_order_release);
}

/// Wakes some workers, who wake as many each: a wake costs its thread 1 us, all 15 of 16 threads the caller 14. One
/// that falls asleep at this moment may miss the job.
void ThreadPool::wake_some(const Job& job) {
    const auto sleepers = static_cast<int64_t>(sleepers_.load(std::memory_order_relaxed));
    const int64_t awake = threads() - sleepers;
    if (sleepers <= 0 || awake >= job.count) return;
    bell_.fetch_add(1, std::memory_order_release);
    for (int64_t i = std::min(sleepers, woken_by_one); i > 0; --i) bell_.notify_one();
}

/// Sequentially consistent, as what report() writes: see Bell::ring().
int64_t ThreadPool::done_by_workers(const Job& job) const {
    int64_t tasks = 0;
    for (int i = 1; i < threads(); ++i) {
        const int64_t done = shares_[static_cast<size_t>(i)].done.load(std::memory_order_seq_cst);
        tasks += number_in(done) == job.number ? tasks_in(done) : 0;
    }
    return tasks;
}

/// All tasks are handed out; waits for those that still run theirs.
void ThreadPool::wait_for_workers(const Job& job, int64_t done_by_caller) {
    const auto all_done = [&] { return done_by_caller + done_by_workers(job) == job.count; };
    reports_.wait(all_done);
}

// ---- workers

void ThreadPool::work_until_stopped(int index) {
    Job job{};
    while (next_job(job)) work(job, index);
}

/// Replaces the job by a later one, once there is one. False: there will be none.
bool ThreadPool::next_job(Job& job) {
    const int64_t last = job.number;
    const auto found = [&] { return copy_job(job); };
    while (!found() && !wait_for(patience, found)) sleep(last);
    return job.number != stop;
}

/// False when there is no other yet, or the caller is writing it.
bool ThreadPool::copy_job(Job& job) const {
    const int64_t number = announced_.number.load(std::memory_order_acquire);
    if (number == job.number || number % 2 != 0) return false;
    job.task = announced_.task.load(std::memory_order_acquire);
    job.context = announced_.context.load(std::memory_order_acquire);
    job.first = announced_.first.load(std::memory_order_acquire);
    job.count = announced_.count.load(std::memory_order_acquire);
    job.cpu = announced_.cpu.load(std::memory_order_acquire);
    if (announced_.number.load(std::memory_order_relaxed) != number) return false;
    job.number = number;
    return true;
}

void ThreadPool::sleep(int64_t last_job) {
    sleepers_.fetch_add(1, std::memory_order_relaxed);
    const int32_t bell = bell_.load(std::memory_order_acquire);
    if (announced_.number.load(std::memory_order_acquire) == last_job) bell_.wait(bell, std::memory_order_acquire);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

/// Moves this thread to another CPU that it may run on; afterwards it may run where it could before. A caller that
/// never sleeps keeps a worker on its own CPU waiting until the next tick of the scheduler, milliseconds after the job;
/// and as that runs for some microseconds only, nothing moves it (Linux 6.18, 2 CPUs, one of them idle: no job was ever
/// shared).
void ThreadPool::leave(int cpu) const {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < threads()) return;
    cpu_set_t others = allowed;
    CPU_CLR(static_cast<size_t>(cpu), &others);
    if (sched_setaffinity(0, sizeof(others), &others) == 0) sched_setaffinity(0, sizeof(allowed), &allowed);
}

void ThreadPool::work(const Job& job, int index) {
    if (sched_getcpu() == job.cpu) leave(job.cpu);
    const bool is_early =
        number_in(shares_[static_cast<size_t>(index)].claimed.load(std::memory_order_relaxed)) < job.number;
    if (is_early) wake_some(job);
    int64_t done = run_share(job, index);
    if (done > 0) report(job, index, done);
    const auto is_over = [&] { return announced_.number.load(std::memory_order_relaxed) != job.number; };
    if (wait_for(restraint, is_over)) return;
    for (int i = 1; i < threads(); ++i) {
        const int64_t helped = run_share(job, (index + i) % threads());
        if (helped > 0) report(job, index, done += helped);
    }
}

void ThreadPool::report(const Job& job, int index, int64_t done) {
    shares_[static_cast<size_t>(index)].done.store(pack(job.number, done), std::memory_order_seq_cst);
    reports_.ring();
}

// ---- all threads

/// Runs what is left of a thread's share. Returns how many tasks it were.
int64_t ThreadPool::run_share(const Job& job, int of) {
    const int64_t each = job.count / threads(), more = job.count % threads();
    const int64_t begin = job.first + of * each + std::min<int64_t>(of, more);
    const int64_t size = each + (of < more ? 1 : 0);
    std::atomic<int64_t>& claimed = shares_[static_cast<size_t>(of)].claimed;
    int64_t tasks = 0;
    for (int64_t task; (task = claim(claimed, job.number, size)) >= 0; ++tasks) job.task(job.context, begin + task);
    return tasks;
}

/// A task of a share that was nobody's yet; -1 when there is none. While there is one the job is not over, so that who
/// succeeds has read what is current.
int64_t ThreadPool::claim(std::atomic<int64_t>& claimed, int64_t number, int64_t size) {
    int64_t seen = claimed.load(std::memory_order_relaxed);
    for (;;) {
        const int64_t taken = number_in(seen) == number ? tasks_in(seen) : 0;
        if (number_in(seen) > number || taken == size) return -1;
        if (claimed.compare_exchange_weak(seen, pack(number, taken + 1), std::memory_order_relaxed)) return taken;
    }
}

}  // namespace normjit::cpu
