// SPDX-License-Identifier: Apache-2.0
// Starts normjit's threads.
#pragma once

#include <pthread.h>

namespace normjit {

/// Starts a thread that runs function(argument). It receives no signals except those of its own faults: the program's
/// handlers may give memory to its tensors, or report a crash. All others go to the program's threads. Its stack is
/// large enough for a launch and a compilation, whatever the default for the program's threads is (RLIMIT_STACK,
/// pthread_setattr_default_np). Returns 0, or the number of the error.
int start_own_thread(pthread_t& thread, void* (*function)(void*), void* argument);

}  // namespace normjit
