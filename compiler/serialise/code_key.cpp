// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include "normjit/serialise.h"

#include <fmt/format.h>

namespace normjit {

namespace {

std::string key_of(std::string_view generator, const Spec& spec, const Schedule& schedule, const Target& target) {
    return fmt::format("{}generator {}\nspec {}\nschedule {}\ntarget {}\n", artifact_magic, generator, to_text(spec),
                       to_text(schedule), to_text(target));
}

}  // namespace

std::string code_key(const Spec& spec, const Schedule& schedule, const Target& target) {
    return key_of(backend::generator_of(target), spec, schedule, target);
}

std::string code_key(const Artifact& artifact) {
    return key_of(artifact.generator, artifact.spec, artifact.schedule, artifact.target);
}

bool is_slow_to_compile(const Target& target) {
    const auto backend = backend::find(target);
    return backend.ok() && (*backend)->is_slow;
}

}  // namespace normjit
