// SPDX-License-Identifier: Apache-2.0
#include "schedule/heuristics.h"
#include "support/default_settings.h"

#include "normjit/kernel_spec.h"

namespace normjit {

namespace {

Schedule choose(const Spec& of, const Target& target, schedule::Reasons reasons) {
    const DefaultSettings settings;
    const Spec spec = kernel_spec(of);
    return target.is_cuda() ? schedule::heuristic_cuda(spec, target, reasons)
                            : schedule::heuristic_cpu(spec, target, reasons);
}

}  // namespace

Schedule heuristic(const Spec& spec, const Target& target) { return choose(spec, target, {}); }

std::vector<std::string> heuristic_reasons(const Spec& spec, const Target& target) {
    std::vector<std::string> reasons;
    choose(spec, target, schedule::Reasons(reasons));
    return reasons;
}

}  // namespace normjit
