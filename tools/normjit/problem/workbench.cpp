// SPDX-License-Identifier: Apache-2.0
#include "problem/workbench.h"

#include "support/try.h"

namespace normjit::cli {
namespace {

/// Returns one memory for all workbenches, because these measure one after another.
ColdMemory& cold_memory(const Target& target) {
    static ColdMemory memory = ColdMemory::of_machine(target);
    return memory;
}

class CpuWorkbench final : public Workbench {
  public:
    CpuWorkbench(const Engine& engine, Caches caches) : Workbench(engine, engine.threads()), caches_(caches) {}

    bool is_cold() const override { return caches_ == Caches::cold && memory().is_enough(); }

    Expected<bench::Measurement> measure(const Kernel& kernel, const Problem& problem,
                                         const bench::MeasureOptions& options) override {
        const Arguments arguments = problem.arguments();
        const bench::Traffic traffic = problem.traffic();
        NORMJIT_TRY(const bench::Measurement measurement,
                    bench::measure(
                        team(), [&]() -> const bench::Traffic& { return traffic; },
                        [&] { return kernel.launch(arguments); }, options));
        problem.restore_accumulated();
        NORMJIT_RETURN_IF_ERROR(kernel.launch(arguments));
        return measurement;
    }

    Expected<bench::Measurement> measure_made(const Kernel& kernel, const MadeData& data,
                                              const bench::MeasureOptions& options) override {
        NORMJIT_TRY(Problem problem, allocate_problem(kernel, data.batch, team(), data.row_alignment));
        fill_inputs(problem, data.seed, team());
        NORMJIT_TRY(RotatingCopies copies, open_copies(std::move(problem), caches_, memory(), team()));
        return measure_in(copies, kernel, options, team());
    }

    Expected<std::unique_ptr<CheckedProblem>> open_checked_problem(const Kernel& kernel, Batch batch,
                                                                   uint64_t seed) override {
        return open_cpu_checked_problem(kernel, batch, seed, caches_, memory(), team());
    }

    nlohmann::ordered_json facts() const override { return {{"cpu", engine().device_class().model}}; }

  private:
    /// The memory is made only when needed, because reading the machine's memory size from system files takes time.
    ColdMemory& memory() const { return cold_memory(engine().target()); }

    const Caches caches_;
};

}  // namespace

Expected<std::unique_ptr<Workbench>> open_workbench(const DeviceOptions& options, Caches caches) {
    if (options.device != "cpu") return open_gpu_workbench(options);
    NORMJIT_TRY(const Engine engine, open_engine(options));
    return std::unique_ptr<Workbench>(std::make_unique<CpuWorkbench>(engine, caches));
}

}  // namespace normjit::cli
