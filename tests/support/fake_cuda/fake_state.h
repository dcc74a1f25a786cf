// SPDX-License-Identifier: Apache-2.0
// What the fake's functions share: the driver of the process, and the check that each of them begins with.
#pragma once

#include "fake_cuda.h"

#include <mutex>

namespace normjit::test {

// Not exported: a process may hold two of these drivers.
extern FakeCuda fake;
extern std::mutex fake_mutex;  ///< of the record of calls, launches and code

/// Records the call; the error that it was told to end in.
cuda::Result enter(const char* function);

/// As enter(), for what a capture in the global mode forbids all threads but those in the relaxed mode.
cuda::Result enter_outside_captures(const char* function);

}  // namespace normjit::test

#define ENTER(function) \
    if (const Result told = normjit::test::enter(#function); told != error_none) return told
#define ENTER_OUTSIDE_CAPTURES(function) \
    if (const Result told = normjit::test::enter_outside_captures(#function); told != error_none) return told
#define EXPORT extern "C" __attribute__((visibility("default")))
