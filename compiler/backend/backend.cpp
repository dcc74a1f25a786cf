// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include "support/fingerprint.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::backend {

namespace {

/// All back ends, in order of preference.
constexpr const Backend* backends[] = {
    &x64_backend,
#ifdef NORMJIT_LLVM
    &llvm_backend,
#endif
    &portable_backend,
    &cuda_backend,
};

/// Checks that this back end serves the target. The target may request another one.
Status serves(const Backend& backend, const Target& target) {
    const bool asked = target.cpu.backend == BackendChoice::automatic || name(target.cpu.backend) == backend.name;
    if (!asked) return unavailable(fmt::format("the target asks for {}", name(target.cpu.backend)));
    return backend.supports(target);
}

}  // namespace

Artifact describe_launches(const plan::Plan& plan, CodeFormat format) {
    Artifact artifact{.spec = whole_spec(plan.spec),
                      .schedule = plan.schedule,
                      .target = plan.target,
                      .geometry = plan.geometry,
                      .generator = generator_of(plan.target),
                      .format = format};
    if (format == CodeFormat::portable) artifact.geometry.cpu.split_rows = 0;  // there is no code for ranges of columns
    if (plan.target.is_cuda()) {
        for (const plan::PlannedPath& planned : plan.cuda().paths) artifact.cuda_paths.push_back(planned.path);
    }
    return artifact;
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

std::string names_serving(const Target& target) {
    std::string names;
    for (const Backend* backend : backends) {
        if (!serves(*backend, target).ok()) continue;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", full_name(*backend));
    }
    return names;
}

std::string full_name(const Backend& backend) {
    return fmt::format("{}{}{}", backend.name, backend.version.empty() ? "" : " ", backend.version);
}

std::string generator_of(const Target& target) {
    return fmt::format("{} {} {}", generator_version, generator_fingerprint, names_serving(target));
}

Expected<LegalPlan> make_legal_plan(const Spec& spec, const Schedule& schedule, const Target& target) {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    NORMJIT_RETURN_IF_ERROR(validate(target));
    NORMJIT_RETURN_IF_ERROR(find(target).status());
    NORMJIT_TRY(plan::Plan plan, plan::make(spec, schedule, target));
    Status refused;
    for (const Backend* backend : backends) {
        if (!serves(*backend, target).ok()) continue;
        Status legal = backend->legal(plan);
        if (legal.ok()) return LegalPlan{backend, std::move(plan)};
        if (legal.code() != Code::unavailable) return legal;
        if (refused.ok()) refused = std::move(legal);
    }
    return refused;
}

}  // namespace normjit::backend
