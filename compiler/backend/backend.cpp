// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include "support/try.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::backend {

Artifact artifact_without_code(const plan::Plan& plan, CodeFormat format) {
    return {.spec = plan.spec,
            .schedule = plan.schedule,
            .target = plan.target,
            .geometry = plan.geometry,
            .entries = {},
            .cuda_paths = {},
            .format = format,
            .code = {}};
}

Expected<const Backend*> find(const Target& target) {
    std::string reasons;
    for (const Backend* backend : {&x64_backend, &cuda_backend}) {
        const Status status = backend->supports(target);
        if (status.ok()) return backend;
        reasons += fmt::format("; {}: {}", backend->name, status.message());
    }
    return unavailable(fmt::format("no back end for target '{}'{}", to_text(target), reasons));
}

Expected<LegalPlan> make_legal_plan(const Spec& spec, const Schedule& schedule, const Target& target) {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    NORMJIT_TRY(const Backend* backend, find(target));
    NORMJIT_TRY(plan::Plan plan, plan::make(spec, schedule, target));
    NORMJIT_RETURN_IF_ERROR(backend->legal(plan));
    return LegalPlan{backend, std::move(plan)};
}

}  // namespace normjit::backend
