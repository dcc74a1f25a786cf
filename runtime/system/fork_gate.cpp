// SPDX-License-Identifier: Apache-2.0
#include "system/fork_gate.h"

#include <chrono>
#include <thread>

#include <pthread.h>
#include <unistd.h>

namespace normjit {

constinit ForkableSharedMutex lookup_mutex;

namespace {

/// Waits until `come` holds. Protects the thread from cancellation: it would leave the lock counted as held or awaited.
template <class Condition>
void wait_until(const Condition& come) {
    const NoCancellation goes_on;
    constexpr int quick = 64;
    for (int i = 0; !come(); ++i) {
        if (i < quick) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
}

constinit ForkableSharedMutex gate;
constinit std::atomic<int> forks = 0;
constinit thread_local int depth = 0;  // the number of ApiScopes that this thread is in

void before_fork() {
    if (depth == 0) gate.lock();
    lookup_mutex.lock();
}

void in_parent() {
    lookup_mutex.unlock();
    if (depth == 0) gate.unlock();
}

/// Resets the gate, because the child lacks the other threads that were inside. This thread may be inside.
void in_child() {
    forks.fetch_add(1, std::memory_order_relaxed);
    lookup_mutex.reset();
    gate.reset();
    if (depth > 0) gate.lock_shared();
}

[[maybe_unused]] const int forks_are_known = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

Process this_process() { return {getpid(), forks.load(std::memory_order_relaxed)}; }

void ForkableSharedMutex::lock() {
    wait_until([&] {
        int64_t seen = state_.load(std::memory_order_relaxed);
        return seen >= 0 && state_.compare_exchange_weak(seen, seen - writer, std::memory_order_acquire);
    });
    wait_until([&] { return state_.load(std::memory_order_acquire) == -writer; });
}

/// Takes back its own count, and tries again when there is no writer.
void ForkableSharedMutex::wait_to_read() {
    wait_until([&] {
        state_.fetch_sub(1, std::memory_order_relaxed);
        wait_until([&] { return state_.load(std::memory_order_relaxed) >= 0; });
        return state_.fetch_add(1, std::memory_order_acquire) >= 0;
    });
}

ApiScope::ApiScope() {
    if (depth++ == 0) gate.lock_shared();
}

ApiScope::~ApiScope() {
    if (--depth == 0) gate.unlock_shared();
}

void ApiScope::let_forks_pass() {
    if (depth > 1) return;
    gate.unlock_shared();
    gate.lock_shared();
}

}  // namespace normjit
