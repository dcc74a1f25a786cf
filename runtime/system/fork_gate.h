// SPDX-License-Identifier: Apache-2.0
// fork() in a process whose threads are inside of normjit. The child has the forking thread alone, so that it would
// find locked, or half done, what another one was about to leave. So fork() waits until none is behind the gate; that
// takes as long as what they make there, and nobody enters meanwhile.
#pragma once

#include "system/no_cancellation.h"

#include <atomic>
#include <cstdint>

namespace normjit {

/// What a thread is in the functions that create, prepare, compile or tune, while it lives: behind the gate, and not to
/// be cancelled. May nest. A fork() by this very thread, out of a callback, does not wait.
class Inside {
  public:
    Inside();
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

  private:
    const NoCancellation goes_on_;
};

/// A lock that a child of fork() may set free, whoever had it: the C library's own know their owner, who is another
/// thread there. Readers let writers go first, so that fork() does not wait for ever where threads always read: one
/// that reads must not lock it again. Who waits looks again and again, every 50 us after a while.
class ForkableSharedMutex {
  public:
    void lock();
    void unlock() { state_.fetch_add(writer, std::memory_order_release); }
    void lock_shared() {
        if (state_.fetch_add(1, std::memory_order_acquire) < 0) wait_to_read();
    }
    void unlock_shared() { state_.fetch_sub(1, std::memory_order_release); }
    void reset() { state_.store(0, std::memory_order_relaxed); }

  private:
    void wait_to_read();

    static constexpr int64_t writer = int64_t{1} << 32;
    std::atomic<int64_t> state_ = 0;  ///< readers, less `writer` while one writes or waits for them to leave
};

/// Guards what threads look up without entering the gate. fork() takes it as well, after the gate.
extern ForkableSharedMutex lookup_mutex;

}  // namespace normjit
