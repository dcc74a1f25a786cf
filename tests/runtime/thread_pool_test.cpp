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

using normjit::cpu::ThreadPool;

namespace {

/// How often each task ran.
struct Counts {
    explicit Counts(int64_t tasks) : of(static_cast<size_t>(tasks)) {}

    static void count(void* counts, int64_t i) { ++static_cast<Counts*>(counts)->of[static_cast<size_t>(i)]; }
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
            pool->run(tasks, Counts::count, &counts);
            CHECK(counts.all(1));
        }
    }
}

TEST_CASE("thousands of jobs in a row") {
    const auto pool = ThreadPool::create(4);
    Counts counts(5);
    for (int i = 0; i < 20000; ++i) pool->run(5, Counts::count, &counts);
    CHECK(counts.all(20000));
}

TEST_CASE("jobs after the workers fell asleep") {
    const auto pool = ThreadPool::create(3);
    Counts counts(3);
    for (int i = 0; i < 5; ++i) {
        wait(std::chrono::milliseconds(3));
        pool->run(3, Counts::count, &counts);
    }
    CHECK(counts.all(5));
}

TEST_CASE("a caller that sleeps while others work wakes up") {
    const auto pool = ThreadPool::create(3);
    struct Meeting {
        std::atomic<int> arrived{0};
        std::thread::id caller = std::this_thread::get_id();
    };
    int helped = 0;
    for (int i = 0; i < 50; ++i) {
        Meeting meeting;
        const auto task = [](void* context, int64_t) {
            auto& mine = *static_cast<Meeting*>(context);
            if (std::this_thread::get_id() == mine.caller) {
                for (int look = 0; look < 1000 && mine.arrived.load() == 0; ++look)
                    wait(std::chrono::microseconds(100));
                return;
            }
            mine.arrived.fetch_add(1);
            wait(std::chrono::milliseconds(1));
            mine.arrived.fetch_add(100);
        };
        pool->run(3, task, &meeting);
        const int arrived = meeting.arrived.load();
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
    const auto task = [](void* context, int64_t) {
        cpu_set_t mine;
        const bool same = sched_getaffinity(0, sizeof(mine), &mine) == 0 && CPU_EQUAL(&mine, &allowed);
        if (!same) ++*static_cast<std::atomic<int>*>(context);
    };
    for (int i = 0; i < 20000; ++i) pool->run(4, task, &differ);
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
                pool->run(tasks, Counts::count, &mine);
                if (!mine.all(job)) return;  // run() came back too early
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Counts& each : counts) CHECK(each.all(jobs));
}

TEST_CASE("a task may run a job on its own pool") {
    struct Nested {
        ThreadPool& pool;
        Counts counts{8};
    };
    const auto pool = ThreadPool::create(3);
    Nested nested{*pool};
    const auto task = [](void* context, int64_t) {
        auto& mine = *static_cast<Nested*>(context);
        mine.pool.run(8, Counts::count, &mine.counts);
    };
    pool->run(10, task, &nested);
    CHECK(nested.counts.all(10));
}

TEST_CASE("the child of a fork runs its tasks itself") {
    const auto pool = ThreadPool::create(3);
    Counts counts(4);
    pool->run(4, Counts::count, &counts);
    const pid_t child = fork();
    if (child == 0) {
        pool->run(4, Counts::count, &counts);
        _exit(counts.all(2) ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
