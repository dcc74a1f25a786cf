// SPDX-License-Identifier: Apache-2.0
// What a back end is: Plan in, Artifact out. Each stands in its own folder with the same file names.
#pragma once

#include "plan/plan.h"

#include "normjit/artifact.h"
#include "normjit/schedule.h"

#include <string>
#include <string_view>
#include <vector>

namespace normjit::backend {

struct Backend {
    std::string_view name;
    /// Empty, or why this target cannot be served.
    Status (*supports)(const Target&);
    /// Whether code for the plan can be made, registers included; the error says what stands in the way.
    Status (*legal)(const plan::Plan&);
    Expected<Artifact> (*emit)(const plan::Plan&);
    /// Texts between plan and artifact, by name.
    std::vector<std::string_view> stages;
    Expected<std::string> (*print_stage)(const plan::Plan&, std::string_view stage);
    bool is_slow = false;  ///< emit() takes longer than reading what it made from a file
    /// Of the library that makes the code, where another version makes other code.
    std::string_view version = {};
};

extern const Backend x64_backend;
extern const Backend cuda_backend;
extern const Backend llvm_backend;  ///< in builds with LLVM
extern const Backend portable_backend;

/// What every artifact of the plan says, whatever its code: geometry and launches come from here alone.
Artifact artifact_without_code(const plan::Plan& plan, CodeFormat format);

/// The back end that serves a target; unavailable when none of this build does.
Expected<const Backend*> find(const Target& target);

/// Its name and version: "llvm 19.1.7".
std::string full_name(const Backend& backend);
/// Of all back ends that serve the target, the preferred one first: "x64, llvm 19.1.7, portable".
std::string names_serving(const Target& target);

/// What makes code for the target here: generator_version, a checksum of the compiler's sources, and the back ends that
/// may serve it, with their versions.
std::string generator_of(const Target& target);

/// See compile.h.
Expected<std::string> list_instructions(const Artifact& artifact);

/// A plan and the back end that can make code for it.
struct LegalPlan {
    const Backend* backend;
    plan::Plan plan;
};

/// The error says why not, as legality() does.
Expected<LegalPlan> make_legal_plan(const Spec& spec, const Schedule& schedule, const Target& target);

}  // namespace normjit::backend
