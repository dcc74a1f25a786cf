// SPDX-License-Identifier: Apache-2.0
#include "workbench.h"

#include "support/try.h"

namespace normjit::cli {
namespace {

class CpuWorkbench final : public Workbench {
  public:
    explicit CpuWorkbench(const Engine& engine) : Workbench(engine, engine.threads()) {}

    Expected<bench::Measurement> measure(const Kernel& kernel, const Problem& problem,
                                         const bench::MeasureOptions& options) override {
        const Arguments arguments = problem.arguments();
        return bench::measure(team(), problem.traffic(), [&] { return kernel.launch(arguments); }, options);
    }

    Expected<bench::Measurement> measure_made(const Kernel& kernel, int64_t rows, uint64_t seed,
                                              const bench::MeasureOptions& options) override {
        NORMJIT_TRY(const Problem problem, allocate_problem(kernel, rows, team()));
        fill_inputs(problem, seed, team());
        return measure(kernel, problem, options);
    }

    Expected<std::unique_ptr<Course>> open_course(const Kernel& kernel, int64_t rows, uint64_t seed) override {
        return open_cpu_course(kernel, rows, seed, team());
    }

    nlohmann::ordered_json facts() const override { return {{"cpu", engine().device_class().model}}; }
};

}  // namespace

Expected<std::unique_ptr<Workbench>> open_workbench(const DeviceOptions& options) {
    if (options.device != "cpu") return open_gpu_workbench(options);
    NORMJIT_TRY(const Engine engine, open_engine(options));
    return std::unique_ptr<Workbench>(std::make_unique<CpuWorkbench>(engine));
}

}  // namespace normjit::cli
