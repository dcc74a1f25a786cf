// SPDX-License-Identifier: Apache-2.0
// Threads that normjit starts.
#pragma once

#include <pthread.h>

namespace normjit {

/// Starts one that runs function(argument). It takes no signals, which go to the threads of the program, and its stack
/// has room for a launch and a compilation, whatever the program's threads have (RLIMIT_STACK,
/// pthread_setattr_default_np). Returns 0, or the number of the error.
int start_own_thread(pthread_t& thread, void* (*function)(void*), void* argument);

}  // namespace normjit
