// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/job.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

using namespace std::chrono_literals;
using normjit::cpu::Job;
using normjit::cpu::Phases;
using normjit::cpu::phases_of;

namespace {

constexpr auto restraint = normjit::cpu::restraint;

/// A job that has its own memory.
class OwnedJob {
  public:
    explicit OwnedJob(int seats) : memory_(Job::bytes(seats)), job_(Job::create(memory_.data(), seats)) {}
    Job* operator->() { return &job_; }

  private:
    std::vector<char> memory_;
    Job& job_;
};

/// Phases in which every task adds the numbers that all tasks of the previous phase wrote. The sum is right only if all
/// those tasks had ended.
class Sums {
  public:
    Sums(int64_t tasks, int64_t phases) : tasks_(tasks), sums_(static_cast<size_t>((1 + phases) * tasks), 1) {
        phases_ = phases_of(phases, tasks, tasks, *this);
    }
    Sums(const Sums&) = delete;
    Sums& operator=(const Sums&) = delete;

    const Phases& phases() const { return phases_; }
    void operator()(int64_t phase, int64_t i) const { const_cast<Sums*>(this)->run(phase, i); }

    bool are_right() const {
        for (int64_t phase = 0; phase < phases_.count; ++phase) {
            for (int64_t i = 0; i < tasks_; ++i) {
                if (at(phase + 1, i) != sum_for(phase, i)) return false;
            }
        }
        return runs_ == tasks_ * phases_.count;
    }

  private:
    int64_t at(int64_t phase, int64_t i) const { return sums_[static_cast<size_t>(phase * tasks_ + i)]; }
    int64_t sum_for(int64_t phase, int64_t i) const {
        constexpr int64_t modulus = 1000003;
        int64_t sum = i;
        for (int64_t other = 0; other < tasks_; ++other) sum += at(phase, other);
        return sum % modulus;
    }
    void run(int64_t phase, int64_t i) {
        sums_[static_cast<size_t>((phase + 1) * tasks_ + i)] = sum_for(phase, i);
        ++runs_;
    }

    const int64_t tasks_;
    Phases phases_{};
    std::vector<int64_t> sums_;  // plain numbers, because their ordering is what is tested
    std::atomic<int64_t> runs_ = 0;
};

/// True if the system says that a thread of this process sleeps. A thread that waits for a CPU does not sleep.
bool sleeps(pid_t thread) {
    std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.substr(name_end, 3) == ") S";
}

/// The clock of a program that runs under libfaketime.
struct StoppedClock : std::chrono::steady_clock {
    static time_point now() { return time_point(1h); }
};

}  // namespace

TEST_CASE("a phase begins when the one before is over, whoever runs its tasks") {
    for (const int64_t tasks : {1, 2, 3, 7}) {
        for (const int seats : {1, 2, 3, 7}) {
            // With more threads than shares, some threads have a share in common.
            for (const int shares : {1, 2, seats}) {
                Sums sums(tasks, 300);
                OwnedJob job(shares);
                job->begin(sums.phases());
                std::vector<std::thread> threads;
                for (int seat = 0; seat < seats; ++seat)
                    threads.emplace_back([&, seat] { job->take_part(seat, seats, restraint); });
                for (std::thread& thread : threads) thread.join();
                CHECK(sums.are_right());
            }
        }
    }
}

TEST_CASE("nobody waits for a thread that does not come") {
    Sums sums(5, 20);
    OwnedJob job(5);
    const Job::Phase first = job->begin(sums.phases());
    job->take_part(2, 5);
    CHECK(sums.are_right());
    job->take_part(0, 5);  // this comes too late
    CHECK(sums.are_right());
    job->wait_until_over(first);
}

TEST_CASE("a thread that comes late finds the phase that the others are at") {
    Sums sums(3, 2000);
    OwnedJob job(3);
    const Job::Phase begun = job->begin(sums.phases());
    std::thread first([&] { job->take_part(0, 3); });
    std::this_thread::sleep_for(200us);
    job->take_part(1, 3, restraint);
    job->wait_until_over(begun);
    CHECK(sums.are_right());
    first.join();
}

TEST_CASE("phases may have no tasks, or very many") {
    struct Counts {
        int64_t phases, tasks, last_tasks;
    };
    for (const auto& [count, tasks, last_tasks] :
         {Counts{1, 0, 0}, {2, 0, 3}, {3, 2, 0}, {3, 0, 0}, {2, 70000, 200000}}) {
        int64_t ran = 0;
        const auto task = [&](int64_t, int64_t) { ++ran; };
        const Phases phases = phases_of(count, tasks, last_tasks, task);
        OwnedJob job(2);
        for (int64_t times = 1; times <= 3; ++times) {  // the job is used again
            Job::Phase phase = job->begin(phases);
            job->take_part(phase, 1, 2, restraint);
            job->wait_until_over(phase);
            CHECK(ran == times * phases.all_tasks());
        }
        phases.run_alone();
        CHECK(ran == 4 * phases.all_tasks());
    }
}

TEST_CASE("a thread with a phase of an older job runs nothing, and finds the newest") {
    int old_runs = 0, new_runs = 0;
    const auto old_task = [&](int64_t, int64_t) { ++old_runs; };
    const auto new_task = [&](int64_t, int64_t) { ++new_runs; };
    OwnedJob job(2);
    Job::Phase late;
    {
        const Phases old_phases = phases_of(1, 0, 3, old_task);
        late = job->begin(old_phases);
        CHECK(job->is_untouched(late, 1));
        job->take_part(0, 2);
    }
    const Phases new_phases = phases_of(1, 0, 3, new_task);
    job->begin(new_phases);
    job->take_part(late, 1, 2, restraint);
    CHECK(old_runs == 3);
    REQUIRE(job->find_next(late));
    CHECK_FALSE(job->find_next(late));
    job->take_part(late, 1, 2, restraint);
    CHECK(new_runs == 3);
    job->stop();
    REQUIRE(job->find_next(late));
    CHECK(late.is_stop());
}

TEST_CASE("a thread sleeps that waits for a task of another one") {
    constexpr auto until_hung = 20s;
    OwnedJob job(2);
    std::atomic<pid_t> waiter = 0;
    std::thread other;
    bool slept = false;
    const auto task = [&](int64_t phase, int64_t i) {
        if (phase == 1) return;
        if (i == 1) {
            waiter = gettid();
            return;
        }
        // The thread stands still, as if another program had its CPU.
        other = std::thread([&] { job->take_part(1, 2); });
        const auto end = std::chrono::steady_clock::now() + until_hung;
        while (!slept && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(1ms);
            slept = waiter != 0 && sleeps(waiter);
        }
    };
    const Phases phases = phases_of(2, 2, 1, task);
    job->begin(phases);
    job->take_part(0, 2);
    other.join();
    CHECK(slept);
}

TEST_CASE("a thread that waits goes on though the clock stands still") {
    int64_t looks = 0;
    CHECK_FALSE(normjit::cpu::wait_for<StoppedClock>(restraint, [&] { return ++looks < 0; }));
    CHECK(looks >= 8);
    CHECK(normjit::cpu::wait_for<StoppedClock>(restraint, [&] { return --looks < 8; }));
}
