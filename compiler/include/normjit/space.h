// SPDX-License-Identifier: Apache-2.0
// The schedules that are worth measuring for a problem.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace normjit {

/// The schedules of one problem that may differ in speed: for each field of the schedule, the values worth trying,
/// given the fields before it and the size of the problem.
class ScheduleSpace {
  public:
    /// The spec must be valid and the target supported. A spec without rows is searched as if it had usual_rows.
    ScheduleSpace(const Spec& spec, const Target& target);
    ~ScheduleSpace();

    static constexpr int64_t usual_rows = 8192;
    /// Returns the batch that is searched: the sizes that the spec fixes, and otherwise about usual_rows rows in all.
    static Batch usual_batch(const Spec& spec);

    /// Returns the heuristic's schedule, at which a search begins.
    const Schedule& start() const;

    /// Returns usable schedules that differ from `schedule` in one field and the fields that must change with it. Small
    /// steps come first, one for each field, then larger ones.
    std::vector<Schedule> neighbours(const Schedule& schedule) const;

    /// Returns usable schedules of the nearest points in the library, the most promising first, followed by the
    /// heuristic's choice without points. Returns none for CPUs.
    std::vector<Schedule> of_points() const;

    /// Returns usable schedules that the heuristic chooses for similar problems (narrower or wider rows, fewer or more
    /// rows, the other norm), adapted to this one. If the heuristic's choice for this problem is bad, the best schedule
    /// may be among them rather than among its neighbours.
    std::vector<Schedule> relatives() const;

    /// True if there are enough tasks to balance the load on a machine that does other work as well. False for CPU
    /// schedules with fewer than two row groups per core if the heuristic has more.
    bool is_shareable(const Schedule& schedule) const;

    /// Returns the keys of the fields that are searched, as in the schedule's text.
    std::vector<std::string_view> keys() const;

  private:
    struct Impl;
    std::unique_ptr<const Impl> impl_;
};

}  // namespace normjit
