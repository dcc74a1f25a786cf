// SPDX-License-Identifier: Apache-2.0
#include "schedule/heuristics.h"
#include "support/default_settings.h"

#include "normjit/kernel_spec.h"

namespace normjit {

namespace {

/// `points`: null for those in the library, which are read for GPUs alone.
Schedule choose(const Spec& of, const Target& target, const PointSet* points, schedule::Reasons reasons) {
    const DefaultSettings settings;
    const Spec spec = kernel_spec(of);
    if (!target.is_cuda()) return schedule::heuristic_cpu(spec, target, reasons);
    return schedule::heuristic_cuda(spec, target, points == nullptr ? PointSet::shipped() : *points, reasons);
}

}  // namespace

Schedule heuristic(const Spec& spec, const Target& target) { return choose(spec, target, nullptr, {}); }

Schedule heuristic(const Spec& spec, const Target& target, const PointSet& points) {
    return choose(spec, target, &points, {});
}

std::vector<std::string> heuristic_reasons(const Spec& spec, const Target& target) {
    return heuristic_reasons(spec, target, PointSet::shipped());
}

std::vector<std::string> heuristic_reasons(const Spec& spec, const Target& target, const PointSet& points) {
    std::vector<std::string> reasons;
    choose(spec, target, &points, schedule::Reasons(reasons));
    return reasons;
}

}  // namespace normjit
