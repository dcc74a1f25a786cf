// SPDX-License-Identifier: Apache-2.0
#include "fork_gate.h"

#include <array>
#include <cstdlib>

namespace normjit {

namespace {

constinit ForkableSharedMutex gate;
constinit thread_local int depth = 0;  // of this thread's NoForks

constinit std::array<ForkLock, 4> locks{};
constinit size_t lock_count = 0;

void before_fork() {
    if (depth == 0) gate.lock();
    for (size_t i = 0; i < lock_count; ++i) locks[i].lock();
}

void in_parent() {
    for (size_t i = lock_count; i-- > 0;) locks[i].unlock();
    if (depth == 0) gate.unlock();
}

/// The others that were behind the gate, if this thread was, are gone.
void in_child() {
    for (size_t i = lock_count; i-- > 0;) locks[i].unlock_in_child();
    gate.reset();
    if (depth > 0) gate.lock_shared();
}

[[maybe_unused]] const int forks_are_known = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

NoForks::NoForks() {
    if (depth++ == 0) gate.lock_shared();
}

NoForks::~NoForks() {
    if (--depth == 0) gate.unlock_shared();
}

bool lock_at_forks(const ForkLock& lock) {
    if (lock_count == locks.size()) std::abort();  // room for those that there are
    locks[lock_count++] = lock;
    return true;
}

}  // namespace normjit
