// SPDX-License-Identifier: Apache-2.0
#include "schedule/heuristics.h"
#include "support/default_settings.h"
#include "support/lasting.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

namespace normjit {

namespace {

/// Returns the points in the library; none for a CPU, whose heuristic uses no points.
const PointSet& usual_points(const Target& target) {
    const DefaultSettings settings;  // the first call for a GPU parses points
    static const PointSet& none = *lasting(PointSet());
    return target.is_cuda() ? PointSet::shipped() : none;
}

}  // namespace

Schedule heuristic(const Spec& of, const Target& target, const PointSet& points, std::vector<std::string>* reasons) {
    const DefaultSettings settings;
    const Spec spec = kernel_spec(of);
    const schedule::Reasons collected = reasons == nullptr ? schedule::Reasons() : schedule::Reasons(*reasons);
    return target.is_cuda() ? schedule::heuristic_cuda(spec, target, points, collected)
                            : schedule::heuristic_cpu(spec, target, collected);
}

Schedule heuristic(const Spec& spec, const Target& target) { return heuristic(spec, target, usual_points(target)); }

Schedule for_open_rows(const Schedule& schedule, const Spec& spec, const Spec& open, const Target& target) {
    Schedule opened = schedule;
    const auto* const cuda = std::get_if<CudaSchedule>(&schedule.device);
    if (cuda != nullptr && schedule.row_groups == schedule::cuda_row_groups(kernel_spec(spec), target, *cuda))
        opened.row_groups = schedule::cuda_row_groups(kernel_spec(open), target, *cuda);
    return opened;
}

Status usability(const Spec& spec, const Schedule& schedule, const Target& target, const PointSet& points) {
    NORMJIT_RETURN_IF_ERROR(legality(spec, schedule, target));
    if (!spec.invariant || sum_rows_alike(schedule, heuristic(spec, target, points))) return {};
    return invalid_argument("schedule: invariant=1: adds a row's elements in another order than in other batches");
}

Status usability(const Spec& spec, const Schedule& schedule, const Target& target) {
    return usability(spec, schedule, target, usual_points(target));
}

std::vector<std::string> heuristic_reasons(const Spec& spec, const Target& target) {
    std::vector<std::string> reasons;
    heuristic(spec, target, usual_points(target), &reasons);
    return reasons;
}

}  // namespace normjit
