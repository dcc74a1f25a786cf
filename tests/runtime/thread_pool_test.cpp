// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

using normjit::cpu::phases_of;
using normjit::cpu::ThreadPool;

namespace {

/// Runs one phase.
template <class Task>
void run(ThreadPool& pool, int64_t count, const Task& task) {
    const auto call = [&](int64_t, int64_t i) { task(i); };
    pool.run(phases_of(1, 0, count, call));
}

/// How often each task has run.
struct Counts {
    explicit Counts(int64_t tasks) : of(static_cast<size_t>(tasks)) {}

    void run(ThreadPool& pool) {
        ::run(pool, static_cast<int64_t>(of.size()), [this](int64_t i) { ++of[static_cast<size_t>(i)]; });
    }
    bool all(int64_t times) const {
        for (const auto& each : of) {
            if (each != times) return false;
        }
        return true;
    }

    std::vector<std::atomic<int64_t>> of;
};

void wait(std::chrono::microseconds time) { std::this_thread::sleep_for(time); }

}  // namespace

TEST_CASE("each task runs once") {
    for (int threads : {1, 2, 3, 7}) {
        const auto pool = ThreadPool::create(threads);
        CHECK(pool->threads() == threads);
        for (int64_t tasks : {0, 1, 2, 3, 7, 8, 1000, 65535, 65536, 200000}) {
            Counts counts(tasks);
            counts.run(*pool);
            CHECK(counts.all(1));
        }
    }
}

TEST_CASE("thousands of jobs in a row") {
    const auto pool = ThreadPool::create(4);
    Counts counts(5);
    for (int i = 0; i < 20000; ++i) counts.run(*pool);
    CHECK(counts.all(20000));
}

TEST_CASE("jobs after the workers fell asleep") {
    const auto pool = ThreadPool::create(3);
    Counts counts(3);
    for (int i = 0; i < 5; ++i) {
        wait(std::chrono::milliseconds(3));
        counts.run(*pool);
    }
    CHECK(counts.all(5));
}

TEST_CASE("a caller that sleeps while others work wakes up") {
    const auto pool = ThreadPool::create(3);
    const std::thread::id caller = std::this_thread::get_id();
    int helped = 0;
    for (int i = 0; i < 50; ++i) {
        std::atomic<int> arrivals{0};
        run(*pool, 3, [&](int64_t) {
            if (std::this_thread::get_id() == caller) {
                for (int look = 0; look < 1000 && arrivals == 0; ++look) wait(std::chrono::microseconds(100));
                return;
            }
            arrivals += 1;
            wait(std::chrono::milliseconds(1));
            arrivals += 100;
        });
        const int arrived = arrivals;
        CHECK(arrived % 100 == arrived / 100);  // nobody is still inside
        helped += arrived % 100;
    }
    CHECK(helped > 0);
}

TEST_CASE("workers may run wherever their creator may") {
    static cpu_set_t allowed;
    REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    const auto pool = ThreadPool::create(2);
    std::atomic<int> differ{0};
    const auto compare = [&](int64_t) {
        cpu_set_t mine;
        if (sched_getaffinity(0, sizeof(mine), &mine) != 0 || !CPU_EQUAL(&mine, &allowed)) ++differ;
    };
    for (int i = 0; i < 20000; ++i) run(*pool, 4, compare);
    CHECK(differ == 0);
}

TEST_CASE("several callers at once") {
    const auto pool = ThreadPool::create(3);
    constexpr int callers = 4, jobs = 2000, tasks = 6;
    std::vector<Counts> counts;
    for (int i = 0; i < callers; ++i) counts.emplace_back(tasks);
    std::vector<std::thread> threads;
    for (Counts& mine : counts) {
        threads.emplace_back([&] {
            for (int job = 1; job <= jobs; ++job) {
                mine.run(*pool);
                if (!mine.all(job)) return;  // if so, run() has returned too early
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Counts& each : counts) CHECK(each.all(jobs));
}

TEST_CASE("a task may run a job on its own pool") {
    const auto pool = ThreadPool::create(3);
    Counts counts(8);
    run(*pool, 10, [&](int64_t) { counts.run(*pool); });
    CHECK(counts.all(10));
}

TEST_CASE("the child of a fork runs its tasks itself") {
    const auto pool = ThreadPool::create(3);
    Counts counts(4);
    counts.run(*pool);
    const pid_t child = fork();
    if (child == 0) {
        counts.run(*pool);
        _exit(counts.all(2) ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
