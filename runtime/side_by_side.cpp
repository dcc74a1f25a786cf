// SPDX-License-Identifier: Apache-2.0
#include "side_by_side.h"

#include <system_error>
#include <thread>
#include <vector>

namespace normjit {

namespace {

void run(void*, int64_t count, void (*task)(void* context, int64_t i), void* context) {
    std::vector<std::thread> threads;
    if (count > 1) threads.reserve(static_cast<size_t>(count - 1));
    int64_t started = 1;
    try {
        for (; started < count; ++started) threads.emplace_back(task, context, started);
    } catch (const std::system_error&) {  // no more threads
    }
    for (int64_t i = started; i < count; ++i) task(context, i);
    if (count > 0) task(context, 0);
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

ParallelFor thread_per_task() { return {run, nullptr}; }

}  // namespace normjit
