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
    NORMJIT_TRY(const backend::LegalPlan legal, backend::make_legal_plan(spec, schedule, target));
    return fmt::format("generator {} {}\nbackend {} {}\n{}{}", generator_version, generator_fingerprint,
                       legal.backend->name, legal.backend->version, plan::print(legal.plan),
                       ir::print(legal.plan.function));
}

bool is_slow_to_compile(const Target& target) {
    const auto backend = backend::find(target);
    return backend.ok() && (*backend)->is_slow;
}

}  // namespace normjit
