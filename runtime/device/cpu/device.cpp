// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "device/cpu/host_target.h"
#include "device/cpu/kernel.h"
#include "device/cpu/problem.h"
#include "kernel/check_artifact.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::cpu {

namespace {

/// Falls back to evaluating formulas if the system does not let this process run code that it makes. Fails instead if
/// the options ask for a code generator.
Status settle_for_allowed(Target& target, const Log& log) {
    if (target.cpu.backend == BackendChoice::portable) return {};
    const Status allowed = can_run_made_code();
    if (allowed.ok()) return {};
    if (target.cpu.backend != BackendChoice::automatic) {
        return unavailable(fmt::format("engine: backend {}: {}; NORMJIT_ISA=portable, or backend portable, needs none",
                                       normjit::name(target.cpu.backend), allowed.message()));
    }
    target.cpu.backend = BackendChoice::portable;
    log(LogLevel::warning, fmt::format("engine: {}; formulas are evaluated, many times slower; NORMJIT_ISA=portable "
                                       "asks for that",
                                       allowed.message())
                               .c_str());
    return {};
}

class CpuDevice final : public Device {
  public:
    CpuDevice(const Target& target, std::shared_ptr<const Threads> threads)
        : target_(target), threads_(std::move(threads)) {}

    const std::string& name() const override { return name_; }
    const Target& target() const override { return target_; }
    std::string model() const override { return cpu_model(); }
    int threads() const override { return threads_->count(); }
    std::string whose_threads() const override { return threads_->text(); }

    Expected<std::shared_ptr<const Kernel::Impl>> load(const Artifact& artifact) const override {
        NORMJIT_RETURN_IF_ERROR(check_cpu_artifact(artifact, target_));
        std::optional<ExecutableMemory> code;
        std::optional<PortableProgram> formula;
        if (artifact.format == CodeFormat::portable) {
            NORMJIT_TRY(formula, PortableProgram::make(artifact));
        } else {
            NORMJIT_TRY(code, ExecutableMemory::make(artifact.code));
        }
        return std::shared_ptr<const Kernel::Impl>(
            std::make_shared<CpuKernel>(artifact, threads_, std::move(code), std::move(formula)));
    }

    OpenedProblem open_timed_problem(const Spec& spec, Batch batch, const Deadline& deadline) const override {
        return cpu::open_timed_problem(spec, batch, deadline);
    }

  private:
    const std::string name_ = "cpu";
    const Target target_;
    const std::shared_ptr<const Threads> threads_;
};

}  // namespace

OpenedDevice open_device(const EngineOptions& options) {
    NORMJIT_TRY(Target target, host_target(options.isa));
    if (options.backend != BackendChoice::automatic) target.cpu.backend = options.backend;
    NORMJIT_RETURN_IF_ERROR(settle_for_allowed(target, options.log));
    NORMJIT_TRY(auto threads, Threads::create(options, target.cpu.cores));
    // Schedules are for the threads of a launch if their number is fixed. With OpenMP it may change at each.
    if (options.threads != 0) target.cpu.cores = std::min(target.cpu.cores, threads->count());
    return std::shared_ptr<const Device>(std::make_shared<CpuDevice>(target, std::move(threads)));
}

}  // namespace normjit::cpu
