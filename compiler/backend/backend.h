// SPDX-License-Identifier: Apache-2.0
// The interface of a back end, which turns a Plan into an Artifact. Each has its own folder with the same file names.
#pragma once

#include "plan/plan.h"

#include "normjit/artifact.h"
#include "normjit/schedule.h"

#include <span>
#include <string>
#include <string_view>

namespace normjit::backend {

struct Backend {
    std::string_view name;
    /// Returns success, or the reason why this target cannot be served.
    Status (*supports)(const Target&);
    /// Returns success if there is code for the plan and enough registers; otherwise the reason. The status is
    /// `unavailable` if this back end has no schedule for the spec, so that another one should make the code.
    Status (*legal)(const plan::Plan&);
    Expected<Artifact> (*emit)(const plan::Plan&);
    /// The names of the texts between plan and artifact, as `--emit` takes them.
    std::span<const std::string_view> stages;
    Expected<std::string> (*print_stage)(const plan::Plan&, std::string_view stage);
    bool is_slow = false;  ///< emit() takes longer than reading its result from a file
    /// The version of the library that generates code, if different versions generate different code.
    std::string_view version = {};
};

extern const Backend x64_backend;
extern const Backend cuda_backend;
extern const Backend llvm_backend;  ///< only in builds with LLVM
extern const Backend portable_backend;

/// Makes an artifact that has everything but code. This is the only place that makes geometry and launches.
Artifact describe_launches(const plan::Plan& plan, CodeFormat format);

/// Returns the back end that serves a target; `unavailable` if this build has none.
Expected<const Backend*> find(const Target& target);

/// Returns its name and version: "llvm 19.1.7".
std::string full_name(const Backend& backend);
/// Returns the full names of all back ends for the target, the preferred one first: "x64, llvm 19.1.7, portable".
std::string names_serving(const Target& target);

/// Identifies what generates code for the target: generator_version, a checksum of the compiler's sources, and the back
/// ends that serve the target, with their versions.
std::string generator_of(const Target& target);

/// Implements list_instructions() of compile.h.
Expected<std::string> list_instructions(const Artifact& artifact);

/// A plan, and the back end that can make code for it.
struct LegalPlan {
    const Backend* backend;
    plan::Plan plan;
};

/// Makes a plan and finds its back end. The error says why the schedule is not legal, as legality() does.
Expected<LegalPlan> make_legal_plan(const Spec& spec, const Schedule& schedule, const Target& target);

}  // namespace normjit::backend
