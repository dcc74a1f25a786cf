// SPDX-License-Identifier: Apache-2.0
// Threads that are the caller's, lent for tasks that may run one after another.
#pragma once

#include <cstdint>

namespace normjit {

/// run(self, count, task, context) calls task(context, i) once for every i in [0, count), in any order, on any threads,
/// and returns when all have returned. Tasks throw nothing; some wait for what another one has begun, none for one that
/// has not begun. A launch fails of which run() has run fewer tasks when it returns, or more.
struct ParallelFor {
    void (*run)(void* self, int64_t count, void (*task)(void* context, int64_t i), void* context) = nullptr;
    void* self = nullptr;
};

}  // namespace normjit
