// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <thread>
#include <vector>

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

}  // namespace normjit::test
