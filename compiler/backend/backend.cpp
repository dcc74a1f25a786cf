// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include "support/try.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::backend {

namespace {

/// In the order of preference.
constexpr const Backend* backends[] = {
    &x64_backend,
#ifdef NORMJIT_LLVM
    &llvm_backend,
#endif
    &portable_backend,
    &cuda_backend,
};

/// Why the target, which asks for one back end or leaves the choice, is not served by this one.
Status serves(const Backend& backend, const Target& target) {
    const bool asked = target.backend == BackendChoice::automatic || name(target.backend) == backend.name;
    if (!asked) return unavailable(fmt::format("the target asks for {}", name(target.backend)));
    return backend.supports(target);
}

}  // namespace

Artifact artifact_without_code(const plan::Plan& plan, CodeFormat format) {
    Geometry geometry = plan.geometry;
    geometry.split_rows = 0;  // until there is code for it
    return {.spec = plan.spec,
            .schedule = plan.schedule,
            .target = plan.target,
            .geometry = geometry,
            .entries = {},
            .cuda_paths = {},
            .format = format,
            .code = {}};
}

Expected<const Backend*> find(const Target& target) {
    std::string reasons;
    for (const Backend* backend : backends) {
        const Status status = serves(*backend, target);
        if (status.ok()) return backend;
        reasons += fmt::format("; {}: {}", backend->name, status.message());
    }
    return unavailable(fmt::format("no back end for target '{}'{}", to_text(target), reasons));
}

Status refuse_keep_and_overlap(const plan::Plan& plan) {
    const auto* cpu = std::get_if<CpuSchedule>(&plan.schedule.device);
    if (cpu == nullptr) return {};
    if (cpu->keep != 0)
        return invalid_argument("schedule: keep=1: only code of the x64 back end keeps elements; must be 0");
    if (cpu->overlap != 0)
        return invalid_argument("schedule: overlap=1: only code of the x64 back end overlaps sweeps; must be 0");
    return {};
}

Expected<LegalPlan> make_legal_plan(const Spec& spec, const Schedule& schedule, const Target& target) {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    NORMJIT_TRY(const Backend* backend, find(target));
    NORMJIT_TRY(plan::Plan plan, plan::make(spec, schedule, target));
    NORMJIT_RETURN_IF_ERROR(backend->legal(plan));
    return LegalPlan{backend, std::move(plan)};
}

}  // namespace normjit::backend
