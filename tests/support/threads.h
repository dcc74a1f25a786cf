// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <thread>
#include <vector>

#include <pthread.h>

namespace normjit::test {

/// Calls work(i) on `count` threads that start together, and waits for all of them.
template <class Work>
void at_once(int count, const Work& work) {
    std::barrier start(count);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            start.arrive_and_wait();
            work(i);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

/// Calls work() on a thread of its own, and returns whether that thread was cancelled (pthread_cancel) when work() had
/// returned. AddressSanitizer expects no objects in a function that a cancellation leaves.
template <class Work>
bool is_cancelled_after(const Work& work) {
    const auto run = [](void* self) -> void* {
        (*static_cast<const Work*>(self))();
        pthread_testcancel();
        return nullptr;
    };
    pthread_t thread;
    if (pthread_create(&thread, nullptr, run, const_cast<Work*>(&work)) != 0) return false;
    void* result = nullptr;
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED;
}

}  // namespace normjit::test
