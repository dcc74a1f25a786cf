// SPDX-License-Identifier: Apache-2.0
// Handles fork() in a process whose threads are inside normjit. The child has only the forking thread. It would find
// locks held, or data half written, by threads that it lacks. fork() therefore waits until all threads inside the gate
// have finished their work and left it. No thread enters meanwhile.
#pragma once

#include "system/no_cancellation.h"

#include <atomic>
#include <cstdint>

#include <sys/types.h>

namespace normjit {

/// For its lifetime, marks the calling thread as inside the gate, and protects it from cancellation. The functions that
/// create, prepare, compile or tune have such a scope. Scopes may be nested. A fork() by this very thread, from a
/// callback, does not wait.
class ApiScope {
  public:
    ApiScope();
    ~ApiScope();
    ApiScope(const ApiScope&) = delete;
    ApiScope& operator=(const ApiScope&) = delete;

    /// Lets a waiting fork() proceed. The thread must not hold a lock of the library.
    void let_forks_pass();

  private:
    const NoCancellation goes_on_;
};

/// Tells a process from its parents. Its id alone does not: a child in a new namespace may have the id of its parent.
struct Process {
    pid_t id;
    int forks;  ///< calls of fork() that lead to the process
    bool operator==(const Process&) const = default;
};
Process this_process();

/// A lock that a child of fork() can release, whichever thread held it. A lock of the C library knows its owner, a
/// thread that may be missing in the child. Readers let writers go first, so that fork() does not wait forever if some
/// thread always reads. A thread must not lock it for reading twice. Waiting threads poll, after a while every 50 us.
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
    std::atomic<int64_t> state_ = 0;  ///< the number of readers, minus `writer` while a writer writes or waits for them
                                      ///< to leave
};

/// Guards tables that threads read without entering the gate. fork() takes it as well, after the gate.
extern ForkableSharedMutex lookup_mutex;

}  // namespace normjit
