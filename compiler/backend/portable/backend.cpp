// SPDX-License-Identifier: Apache-2.0
// Generates no code: the artifact carries the formula, which PortableProgram evaluates.
#include "backend/backend.h"

#include "backend/portable/rows.h"

#include <fmt/format.h>

namespace normjit::backend {

namespace {

Status supports(const Target& target) {
    if (!target.is_cuda()) return {};
    return unavailable("runs on CPUs only");
}

Status legal(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    if (cpu.cache_elements != 0)
        return invalid_argument("schedule: cache_elements=1: portable code keeps no elements; must be 0");
    if (cpu.overlap != 0) return invalid_argument("schedule: overlap=1: portable code overlaps no sweeps; must be 0");
    if (plan.function.values.size() <= portable::most_values) return {};
    return invalid_argument(fmt::format("spec: its formula has {} values; portable code holds {}",
                                        plan.function.values.size(), portable::most_values));
}

Expected<Artifact> emit(const plan::Plan& plan) {
    Artifact artifact = describe_launches(plan, CodeFormat::portable);
    const std::string formula = ir::print(plan.function);
    artifact.code.assign(formula.begin(), formula.end());
    return artifact;
}

}  // namespace

constinit const Backend portable_backend{"portable", supports, legal, emit, {}, nullptr};

}  // namespace normjit::backend
