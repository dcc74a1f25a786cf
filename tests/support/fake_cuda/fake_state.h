// SPDX-License-Identifier: Apache-2.0
// What the fake's functions share: the driver of the process, and the check with which each function begins.
#pragma once

#include "fake_cuda.h"

#include <mutex>

namespace normjit::test {

// Not exported, because a process may have loaded two of these drivers.
extern FakeCuda fake;
extern std::mutex fake_mutex;  ///< protects the record of calls, launches and code

/// Records the call. Returns its error, if a test has set one.
cuda::Result enter(const char* function);

/// Does the same for calls that a capture in the global mode forbids to all threads that are not in the relaxed mode.
cuda::Result enter_outside_captures(const char* function);

}  // namespace normjit::test

#define ENTER(function) \
    if (const Result told = normjit::test::enter(#function); told != error_none) return told
#define ENTER_OUTSIDE_CAPTURES(function) \
    if (const Result told = normjit::test::enter_outside_captures(#function); told != error_none) return told
#define EXPORT extern "C" __attribute__((visibility("default")))
