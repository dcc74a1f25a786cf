// SPDX-License-Identifier: Apache-2.0
// The threads of an engine on the CPU: which threads can run the tasks of a launch, and which do.
#pragma once

#include "device/cpu/openmp.h"
#include "device/cpu/thread_pool.h"

#include "normjit/options.h"
#include "normjit/parallel_for.h"
#include "normjit/status.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace normjit::cpu {

/// Which threads run the tasks of a launch. `alone`: the calling thread. `own`: the engine's threads. `openmp`: those
/// of the OpenMP runtime. `callers`: those of a parallel_for that the engine's user provides.
enum class Executor : uint8_t { alone, own, openmp, callers };

class Threads {
  public:
    /// Makes the threads that the options and NORMJIT_THREADS ask for. If these give no number of own threads, there
    /// are as many as `cores`.
    static Expected<std::shared_ptr<const Threads>> create(const EngineOptions& options, int cores);

    /// Returns the number of threads of a launch, including the caller.
    int count() const { return count_; }
    /// Returns the executor's name: "own".
    std::string text() const;

    /// Returns the executor for a launch that the calling thread begins and takes part in.
    Executor executor() const;

    /// Runs all tasks, and returns when they have returned. Fails if a parallel_for breaks its contract.
    Status run(Executor executor, const Phases& phases) const;

  private:
    Status take_openmp(const EngineOptions& options);
    void start_own(const EngineOptions& options);
    Status run_on_callers(const Phases& phases) const;

    int count_ = 1;
    int asked_ = 0;                     ///< the number of threads that the engine's options ask for; 0: any number
    std::unique_ptr<ThreadPool> pool_;  ///< null if the engine has no threads of its own
    std::optional<OpenMp> openmp_;
    ParallelFor parallel_for_;
};

}  // namespace normjit::cpu
