// SPDX-License-Identifier: Apache-2.0
// The threads of an engine on the CPU: who can run the tasks of a launch, and who does.
#pragma once

#include "device/cpu/openmp.h"
#include "device/cpu/thread_pool.h"

#include "normjit/engine.h"
#include "normjit/parallel_for.h"
#include "normjit/status.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace normjit::cpu {

/// Who runs the tasks of a launch. alone: the calling thread. own: the engine's threads. openmp: those of the OpenMP
/// runtime. callers: a parallel_for of the engine's user.
enum class Executor : uint8_t { alone, own, openmp, callers };

class Threads {
  public:
    /// As the options and NORMJIT_THREADS say. `cores`: how many there are for threads of the engine's own.
    static Expected<std::shared_ptr<const Threads>> create(const EngineOptions& options, int cores);

    /// Threads of a launch, the caller's included.
    int count() const { return count_; }
    /// Whose they are: "own".
    std::string text() const;

    /// Who runs a launch that the calling thread begins and shares.
    Executor executor() const;

    /// Runs all tasks; returns when they have returned. Fails if a parallel_for did not do what it is asked to.
    Status run(Executor executor, const Phases& phases) const;

  private:
    Status take_openmp(const EngineOptions& options);
    void start_own(const EngineOptions& options);
    Status run_on_callers(const Phases& phases) const;

    int count_ = 1;
    int asked_ = 0;                     ///< by the engine's options; 0: nothing
    std::unique_ptr<ThreadPool> pool_;  ///< null: it has none of its own
    std::optional<OpenMp> openmp_;
    ParallelFor parallel_for_;
};

}  // namespace normjit::cpu
