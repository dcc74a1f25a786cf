// SPDX-License-Identifier: Apache-2.0
// How threads of the CPU wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace normjit::cpu {

/// How long a thread looks for what it waits for before it sleeps: about what putting it to sleep and waking it costs.
/// Launches in quick succession find the workers awake; a launch on its own costs every worker this much time.
inline constexpr auto patience = std::chrono::microseconds(20);

/// How long a thread that is done looks for what comes next before it looks at the others' shares: those are taken from
/// their owners' caches then, who seldom need help in the short phases of a launch.
inline constexpr auto restraint = std::chrono::nanoseconds(500);

/// Tells the processor that this loop waits.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

/// Whether what is waited for came true within the time.
template <class Condition>
bool wait_for(std::chrono::steady_clock::duration time, const Condition& condition) {
    using Clock = std::chrono::steady_clock;
    constexpr int looks = 8;  // between those at the clock
    const Clock::time_point end = Clock::now() + time;
    do {
        for (int i = 0; i < looks; ++i) {
            if (condition()) return true;
            relax();
        }
    } while (Clock::now() < end);
    return false;
}

/// What threads sleep on whose wait is longer than `patience`, as it is when what they wait for has lost its CPU to
/// another program: who spins then has used up its own time when the other one has its turn at last.
class Bell {
  public:
    /// Returns when `condition` has come true. Whoever makes it true calls ring() afterwards.
    template <class Condition>
    void wait(const Condition& condition) {
        if (condition() || wait_for(patience, condition)) return;
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        for (;;) {
            const int32_t rings = rings_.load(std::memory_order_acquire);
            if (condition()) break;
            rings_.wait(rings, std::memory_order_acquire);
        }
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }

    /// Sees who sleeps, or they see what was written before, if both that write and the condition's read are
    /// sequentially consistent.
    void ring() {
        if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
        rings_.fetch_add(1, std::memory_order_release);
        rings_.notify_all();
    }

  private:
    std::atomic<int32_t> sleepers_ = 0;
    std::atomic<int32_t> rings_ = 0;
};

}  // namespace normjit::cpu
