// SPDX-License-Identifier: Apache-2.0
// How CPU threads wait for each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace normjit::cpu {

/// How long a waiting thread polls before it sleeps: about as long as it takes to sleep and wake. If launches follow
/// each other quickly, the workers are awake; a single launch costs every worker this time.
inline constexpr auto patience = std::chrono::microseconds(20);

/// How long a thread that has run its share waits for the next phase before it helps with other shares. Reading another
/// share takes its cache lines away from the owner, who seldom needs help in a short phase.
inline constexpr auto restraint = std::chrono::nanoseconds(500);

/// Tells the processor that this is a waiting loop.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

/// Polls until `condition` is true. Returns false if it does not become true within `time`. A program may run with a
/// clock that stands still (libfaketime). A look takes more than a nanosecond, so their number ends the wait as well.
template <class Clock = std::chrono::steady_clock, class Condition>
bool wait_for(std::chrono::nanoseconds time, const Condition& condition) {
    constexpr int looks = 8;  // polls between two reads of the clock
    const typename Clock::time_point end = Clock::now() + time;
    int64_t left = time.count();
    do {
        for (int i = 0; i < looks; ++i) {
            if (condition()) return true;
            relax();
        }
        left -= looks;
    } while (left > 0 && Clock::now() < end);
    return false;
}

/// Wakes threads that sleep because they waited for longer than `patience`. That happens when the awaited thread has
/// lost its CPU to another program. A thread that went on polling would have used up its time slice by then.
class Bell {
  public:
    /// Returns when `condition` has become true. The thread that makes it true must call ring() afterwards.
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

    /// Wakes all sleepers. It misses none if both the write that makes the condition true and the condition's read are
    /// sequentially consistent.
    void ring() {
        if (sleepers() == 0) return;
        rings_.fetch_add(1, std::memory_order_release);
        rings_.notify_all();
    }
    /// Wakes at most `most` sleepers.
    void ring(int most) {
        rings_.fetch_add(1, std::memory_order_release);
        for (int i = std::min(sleepers(), most); i > 0; --i) rings_.notify_one();
    }
    int sleepers() const { return sleepers_.load(std::memory_order_seq_cst); }

  private:
    std::atomic<int32_t> sleepers_ = 0;
    std::atomic<int32_t> rings_ = 0;
};

}  // namespace normjit::cpu
