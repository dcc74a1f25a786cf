// SPDX-License-Identifier: Apache-2.0
// How threads of the CPU wait for each other.
#pragma once

#include <chrono>

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

}  // namespace normjit::cpu
