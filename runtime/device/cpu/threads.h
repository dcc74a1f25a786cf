// SPDX-License-Identifier: Apache-2.0
// The threads of an engine on the CPU: who can run a launch's tasks, and who does.
#pragma once

#include "device/cpu/crew_choice.h"
#include "device/cpu/openmp.h"
#include "device/cpu/thread_pool.h"

#include "normjit/engine.h"
#include "normjit/parallel_for.h"
#include "normjit/status.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace normjit::cpu {

/// Who runs the tasks of a launch. alone: the thread that launches. own: the engine's threads. openmp: those of the
/// OpenMP runtime. callers: a parallel_for of the engine's user.
enum class Crew : uint8_t { alone, own, openmp, callers };

class Threads {
  public:
    using Task = void (*)(void* context, int64_t i);

    /// As the options and NORMJIT_THREADS say. `cores`: how many there are for threads of the engine's own.
    static Expected<std::shared_ptr<const Threads>> create(const EngineOptions& options, int cores);

    /// Of a launch, the caller's included.
    int count() const { return count_; }
    /// Whose they are: "own".
    std::string text() const;

    /// For one kernel's launches to learn which crew is faster; null where there is no choice.
    std::unique_ptr<CrewChoice> choice() const;

    /// For a launch that the calling thread begins.
    Crew crew() const;

    /// Calls task(context, i) for every i in [0, count), by a crew that is not openmp.
    void run(Crew crew, int64_t count, Task task, void* context) const;

    /// All phases in one region of OpenMP's. Returns the seconds that OpenMp::run() says.
    double run_in_region(const Phases& phases) const { return openmp_->run(asked_, phases); }

  private:
    friend class CrewTurn;
    Status take_openmp(const EngineOptions& options);
    void start_own(const EngineOptions& options);
    /// The calling thread may have fewer of OpenMP's by now: the process wants them elsewhere.
    bool may_choose() const { return openmp_ && openmp_->can_run() && openmp_->threads() >= openmp_threads_; }
    /// By CrewChoice's number.
    Crew crew(int choice) const { return choice == 0 ? Crew::openmp : pool_ != nullptr ? Crew::own : Crew::alone; }

    int count_ = 1;
    int asked_ = 0;                     ///< by the engine's options; 0: nothing
    std::unique_ptr<ThreadPool> pool_;  ///< null: it has none of its own
    std::optional<OpenMp> openmp_;
    int openmp_threads_ = 1;  ///< which it would have given when the engine was created
    ParallelFor parallel_for_;
};

/// One launch's crew. How long this lives says how long the crew took.
class CrewTurn {
  public:
    /// `choice`: the kernel's, null when there is none. A launch that is not `shared` is run by its caller alone.
    CrewTurn(const Threads& threads, CrewChoice* choice, int64_t rows, bool shared);
    CrewTurn(const CrewTurn&) = delete;
    CrewTurn& operator=(const CrewTurn&) = delete;
    ~CrewTurn();

    Crew crew = Crew::alone;
    double waited = 0;  ///< seconds for which the caller had nothing to do

  private:
    using Clock = std::chrono::steady_clock;
    CrewChoice* choice_ = nullptr;  ///< null: nothing is learned
    CrewChoice::Launch launch_{};
    Clock::time_point begin_;
};

}  // namespace normjit::cpu
