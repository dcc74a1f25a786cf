// SPDX-License-Identifier: Apache-2.0
// Where `run` and `bench` work: an engine, and how launches on its device are timed beside that device's memory
// ceiling.
#pragma once

#include "checked_problem.h"
#include "device.h"
#include "measure.h"
#include "problem.h"
#include "rotating_copies.h"
#include "team.h"

#include "normjit/engine.h"

#include <memory>

#include <nlohmann/json.hpp>

namespace normjit::cli {

/// What bench measures on.
struct MadeData {
    Batch batch{0};
    uint64_t seed = 1;
    int64_t row_alignment = 1;  ///< bytes; CPU only
};

class Workbench {
  public:
    virtual ~Workbench() = default;

    const Engine& engine() const { return engine_; }
    /// Threads that make data.
    bench::Team& team() { return team_; }

    /// Whether there is memory for made data of any size to be cold, and it was asked for.
    virtual bool is_cold() const = 0;

    /// Times launches on the problem's data. Its outputs hold the gradients afterwards.
    virtual Expected<bench::Measurement> measure(const Kernel& kernel, const Problem& problem,
                                                 const bench::MeasureOptions& options) = 0;

    /// Times launches on data made from a seed; many rows may repeat a part of them.
    virtual Expected<bench::Measurement> measure_made(const Kernel& kernel, const MadeData& data,
                                                      const bench::MeasureOptions& options) = 0;

    /// Data made from a seed for the kernel's problem, on which it and others for that problem are compared.
    virtual Expected<std::unique_ptr<CheckedProblem>> open_checked_problem(const Kernel& kernel, Batch batch,
                                                                           uint64_t seed) = 0;

    /// What a results file says about the device.
    virtual nlohmann::ordered_json facts() const = 0;

  protected:
    Workbench(Engine engine, int threads) : engine_(std::move(engine)), team_(threads) {}

  private:
    const Engine engine_;
    bench::Team team_;
};

Expected<std::unique_ptr<CheckedProblem>> open_cpu_checked_problem(const Kernel& kernel, Batch batch, uint64_t seed,
                                                                   Caches caches, ColdMemory& memory,
                                                                   bench::Team& team);

/// For the device that the options name. `caches`: of made data, on a CPU; a GPU's are always cold.
Expected<std::unique_ptr<Workbench>> open_workbench(const DeviceOptions& options, Caches caches = Caches::warm);
/// For a GPU.
Expected<std::unique_ptr<Workbench>> open_gpu_workbench(const DeviceOptions& options);

}  // namespace normjit::cli
