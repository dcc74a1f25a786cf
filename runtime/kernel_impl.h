// SPDX-License-Identifier: Apache-2.0
// What a kernel is made of on a CPU.
#pragma once

#include "device/cpu/executable_memory.h"
#include "device/cpu/thread_pool.h"

#include "normjit/artifact.h"
#include "normjit/cpu_abi.h"
#include "normjit/kernel.h"

#include <cstdint>
#include <memory>

namespace normjit {

/// The threads of an engine: its own, or the caller's.
struct Threads {
    int count = 1;
    std::unique_ptr<cpu::ThreadPool> pool;  ///< null with the caller's
    ParallelFor parallel_for;

    void run(int64_t tasks, cpu::ThreadPool::Task task, void* context) const {
        pool ? pool->run(tasks, task, context) : parallel_for.run(parallel_for.self, tasks, task, context);
    }
};

struct Kernel::Impl {
    Artifact artifact;
    cpu::ExecutableMemory code;
    std::shared_ptr<const Threads> threads;
    RowsFunction rows = nullptr;
    RowsFunction rows_stream = nullptr;    ///< null when the artifact has none
    FinalFunction final_reduce = nullptr;  ///< null without column sums
};

}  // namespace normjit
