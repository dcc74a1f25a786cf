// SPDX-License-Identifier: Apache-2.0
// fork() in a process whose threads are inside of normjit. The child has the forking thread alone, so that it would
// find locked, or half done, what another one was about to leave. So fork() waits until none is behind the gate; that
// takes as long as what they make there, and nobody enters meanwhile.
#pragma once

#include <pthread.h>

namespace normjit {

/// Behind the gate while it lives. May nest. A fork() by this very thread, out of a callback, does not wait.
class NoForks {
  public:
    NoForks();
    ~NoForks();
    NoForks(const NoForks&) = delete;
    NoForks& operator=(const NoForks&) = delete;
};

/// Shared by readers, who let writers go first, so that fork() does not wait for ever where threads always read. A
/// thread that reads must not lock it again.
class ForkableSharedMutex {
  public:
    void lock() { pthread_rwlock_wrlock(&lock_); }
    void unlock() { pthread_rwlock_unlock(&lock_); }
    void lock_shared() { pthread_rwlock_rdlock(&lock_); }
    void unlock_shared() { pthread_rwlock_unlock(&lock_); }
    /// What a child does in place of unlock(): the owner of the lock is another thread to the C library.
    void reset() { lock_ = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP; }

  private:
    pthread_rwlock_t lock_ = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
};

/// What threads lock for a moment without being behind the gate, or longer than they are: fork() locks it, too, behind
/// the gate, in the order in which it was registered. For objects that last as long as the process.
struct ForkLock {
    void (*lock)();
    void (*unlock)();
    void (*unlock_in_child)();
};
/// Returns true.
bool lock_at_forks(const ForkLock& lock);

}  // namespace normjit
