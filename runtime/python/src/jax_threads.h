// SPDX-License-Identifier: Apache-2.0
// Uses XLA's threads for launches on the CPU.
#pragma once

#include "xla_ffi.h"

#include "normjit/normjit.h"

namespace normjit::jax {

/// For its lifetime, launches of the calling thread may use the thread pool that XLA lends to the call.
class LentPool {
  public:
    explicit LentPool(const CallFrame& call);
    LentPool(const LentPool&) = delete;
    LentPool& operator=(const LentPool&) = delete;
    ~LentPool();
};

/// Runs tasks on the calling thread's pool and on that thread itself. A thread that begins a task finishes it. No
/// thread waits for one that has not begun, so calls from inside the pool cannot wait for each other.
normjit_parallel_for lent_threads();

}  // namespace normjit::jax
