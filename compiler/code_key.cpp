// SPDX-License-Identifier: Apache-2.0
#include "normjit/code_key.h"

#include "backend/backend.h"
#include "fingerprint.h"
#include "plan/plan.h"
#include "support/try.h"

#include "normjit/artifact.h"

#include <fmt/format.h>

namespace normjit {

Expected<std::string> code_key(const Spec& spec, const Schedule& schedule, const Target& target) {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    NORMJIT_TRY(const backend::Backend* backend, backend::find(target));
    NORMJIT_TRY(const plan::Plan plan, plan::make(spec, schedule, target));
    NORMJIT_RETURN_IF_ERROR(backend->legal(plan));
    return fmt::format("generator {} {}\nbackend {}\n{}{}", generator_version, generator_fingerprint, backend->name,
                       plan::print(plan), ir::print(plan.function));
}

bool is_slow_to_compile(const Target& target) {
    const auto backend = backend::find(target);
    return backend.ok() && (*backend)->is_slow;
}

}  // namespace normjit
