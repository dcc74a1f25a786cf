// SPDX-License-Identifier: Apache-2.0
// Shared by the fake's functions: the driver of the process, and the check that each function begins with.
#pragma once

#include "fake_cuda.h"

#include <mutex>

namespace normjit::test {

// Not exported, because a process may have loaded two of these drivers.
extern FakeCuda fake;
extern std::mutex fake_mutex;  ///< protects the record of calls, launches and code

/// Records the call; returns its error, if a test set one.
cuda::Result enter(const char* function);

/// Does the same for calls that a capture in the global mode forbids all threads except those in the relaxed mode.
cuda::Result enter_outside_captures(const char* function);

}  // namespace normjit::test

#define ENTER(function) \
    if (const Result told = normjit::test::enter(#function); told != error_none) return told
#define ENTER_OUTSIDE_CAPTURES(function) \
    if (const Result told = normjit::test::enter_outside_captures(#function); told != error_none) return told
#define EXPORT extern "C" __attribute__((visibility("default")))
