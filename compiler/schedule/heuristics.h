// SPDX-License-Identifier: Apache-2.0
// The heuristics for CPUs and GPUs.
#pragma once

#include "normjit/points.h"
#include "normjit/schedule.h"

#include <cstddef>
#include <string>
#include <vector>

namespace normjit::schedule {

/// Collects the reasons for a schedule, one line per decision, if the caller wants them.
class Reasons {
  public:
    Reasons() = default;
    explicit Reasons(std::vector<std::string>& lines) : lines_(&lines) {}

    void note(auto&& reason) const {
        if (lines_ != nullptr) lines_->push_back(reason());
    }

  private:
    std::vector<std::string>* lines_ = nullptr;
};

Schedule heuristic_cpu(const Spec& spec, const Target& target, Reasons reasons);
/// The number of points whose schedules heuristic_cuda() compares.
inline constexpr size_t compared_points = 16;
Schedule heuristic_cuda(const Spec& spec, const Target& target, const PointSet& points, Reasons reasons);

/// Returns the schedules of the nearest points that fit, at any distance: at most `count`, the most promising first.
std::vector<Schedule> cuda_schedules_of_points(const Spec& spec, const Target& target, const PointSet& points,
                                               size_t count);

/// The fewest columns that make a range of a CPU schedule worth a task.
inline constexpr int64_t least_range_columns = 512;

/// Returns the number that must divide the row groups of a CUDA schedule, as in CudaPath::groups().
int64_t unit_of_groups(const Spec& spec, const CudaSchedule& schedule);
/// Returns the number of row groups that run at once on a GPU.
int64_t cuda_row_groups(const Spec& spec, const Target& target, const CudaSchedule& schedule);

}  // namespace normjit::schedule
