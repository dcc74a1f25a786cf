// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/progress.h"

#include "support/aligned_memory.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

using normjit::cpu::Progress;

namespace {

/// A job in which every part adds up what all parts of the phase before wrote: right only if they all had.
class Job {
  public:
    Job(int64_t parts, int64_t phases)
        : parts_(parts),
          phases_(phases),
          memory_(normjit::allocate_aligned(Progress::line_bytes, (1 + parts) * Progress::line_bytes)),
          sums_(static_cast<size_t>((1 + phases) * parts), 1) {
        progress().begin();
    }

    void take_part(int64_t seat, int64_t seats) {
        progress().take_part(seat, seats, [this](int64_t phase, int64_t part) { run(phase, part); });
    }

    bool is_right() const {
        for (int64_t phase = 0; phase < phases_; ++phase) {
            for (int64_t part = 0; part < parts_; ++part) {
                int64_t wanted = part;
                for (int64_t i = 0; i < parts_; ++i) wanted += at(phase, i);
                if (at(phase + 1, part) != wanted % modulus) return false;
            }
        }
        return runs_ == parts_ * phases_;
    }

  private:
    static constexpr int64_t modulus = 1000003;

    Progress progress() const { return {memory_.get(), parts_, phases_}; }
    int64_t at(int64_t phase, int64_t part) const { return sums_[static_cast<size_t>(phase * parts_ + part)]; }

    void run(int64_t phase, int64_t part) {
        int64_t sum = part;
        for (int64_t i = 0; i < parts_; ++i) sum += at(phase, i);
        sums_[static_cast<size_t>((phase + 1) * parts_ + part)] = sum % modulus;
        ++runs_;
    }

    const int64_t parts_, phases_;
    normjit::AlignedMemory memory_;
    std::vector<int64_t> sums_;  // plain: what orders them is what is tested
    std::atomic<int64_t> runs_ = 0;
};

/// Of a thread of this process, as the system sees it: running, or waiting for a CPU, is R.
bool sleeps(pid_t thread) {
    std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.substr(name_end, 3) == ") S";
}

}  // namespace

TEST_CASE("a phase begins when the one before is over, whoever runs its parts") {
    for (const int64_t parts : {1, 2, 3, 7}) {
        for (const int64_t seats : {1, 2, 3, 7}) {
            Job job(parts, 500);
            std::vector<std::thread> threads;
            for (int64_t seat = 0; seat < seats; ++seat)
                threads.emplace_back([&, seat] { job.take_part(seat, seats); });
            for (std::thread& thread : threads) thread.join();
            CHECK(job.is_right());
        }
    }
}

TEST_CASE("nobody waits for a thread that does not come") {
    Job job(5, 20);
    job.take_part(2, 5);
    CHECK(job.is_right());
    job.take_part(0, 5);  // too late
    CHECK(job.is_right());
}

TEST_CASE("a thread that comes late finds the phase that the others are at") {
    Job job(3, 2000);
    std::thread first([&] { job.take_part(0, 3); });
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    job.take_part(1, 3);
    first.join();
    CHECK(job.is_right());
}

TEST_CASE("without phases there is nothing to do") {
    Job job(3, 0);
    job.take_part(0, 3);
    CHECK(job.is_right());
}

TEST_CASE("who waits for a part that another thread is at sleeps") {
    using namespace std::chrono_literals;
    constexpr int64_t parts = 2, phases = 1;
    constexpr auto until_hung = 20s;
    const auto memory = normjit::allocate_aligned(Progress::line_bytes, (1 + parts) * Progress::line_bytes);
    const Progress progress(memory.get(), parts, phases);
    progress.begin();
    std::atomic<pid_t> waiter = 0;
    std::thread other;
    bool slept = false;
    progress.take_part(0, 2, [&](int64_t, int64_t) {  // stopped, as by another program on its CPU
        other = std::thread([&] { progress.take_part(1, 2, [&](int64_t, int64_t) { waiter = gettid(); }); });
        const auto end = std::chrono::steady_clock::now() + until_hung;
        while (!slept && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(1ms);
            slept = waiter != 0 && sleeps(waiter);
        }
    });
    other.join();
    CHECK(slept);
}
