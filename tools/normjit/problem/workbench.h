// SPDX-License-Identifier: Apache-2.0
// What `run` and `bench` use: an engine, and a way to time launches on its device against that device's memory ceiling.
#pragma once

#include "command_line/device.h"
#include "measure.h"
#include "problem/checked_problem.h"
#include "problem/problem.h"
#include "problem/rotating_copies.h"
#include "team.h"

#include "normjit/engine.h"

#include <memory>

#include <nlohmann/json.hpp>

namespace normjit::cli {

/// The data that `bench` measures with.
struct MadeData {
    Batch batch{0};
    uint64_t seed = 1;
    int64_t row_alignment = 1;  ///< bytes; CPU only
};

class Workbench {
  public:
    virtual ~Workbench() = default;

    const Engine& engine() const { return engine_; }
    /// Returns the threads that make data.
    bench::Team& team() { return team_; }

    /// True if cold data was requested and there is enough memory to make data of any size cold.
    virtual bool is_cold() const = 0;

    /// Times launches on the problem's data. Afterwards its outputs hold the gradients.
    virtual Expected<bench::Measurement> measure(const Kernel& kernel, const Problem& problem,
                                                 const bench::MeasureOptions& options) = 0;

    /// Times launches on data that is made from a seed. If there are many rows, some may be repeated.
    virtual Expected<bench::Measurement> measure_made(const Kernel& kernel, const MadeData& data,
                                                      const bench::MeasureOptions& options) = 0;

    /// Makes data from a seed for the kernel's problem, to compare the kernel with others for that problem.
    virtual Expected<std::unique_ptr<CheckedProblem>> open_checked_problem(const Kernel& kernel, Batch batch,
                                                                           uint64_t seed) = 0;

    /// Returns what a results file says about the device.
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

/// Opens the device that the options name. `caches` says where made data is on a CPU; on a GPU, data is always cold.
Expected<std::unique_ptr<Workbench>> open_workbench(const DeviceOptions& options, Caches caches = Caches::warm);
/// Opens a GPU.
Expected<std::unique_ptr<Workbench>> open_gpu_workbench(const DeviceOptions& options);

}  // namespace normjit::cli
