// SPDX-License-Identifier: Apache-2.0
// Threads that the caller lends to launches.
#pragma once

#include <cstdint>

namespace normjit {

/// run(self, count, task, context) calls task(context, i) once for every i in [0, count), in any order and on any
/// threads, and returns after all calls have returned. Tasks never throw. A task may wait for another task that has
/// begun, but never for one that has not. A launch fails if fewer or more than `count` calls have returned when run()
/// returns, or if a call was for a task outside [0, count); such a call does nothing. A task takes at most 64 KiB of its
/// thread's stack, 96 KiB with the back end `portable`.
struct ParallelFor {
    void (*run)(void* self, int64_t count, void (*task)(void* context, int64_t i), void* context) = nullptr;
    void* self = nullptr;
};

}  // namespace normjit
