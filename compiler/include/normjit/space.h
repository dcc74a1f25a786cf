// SPDX-License-Identifier: Apache-2.0
// Schedules worth measuring.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace normjit {

/// The schedules of one problem that differ in ways that can matter: for each field of the schedule the values worth
/// trying, those that the fields before it and the problem's size leave room for.
class ScheduleSpace {
  public:
    /// A spec without rows is searched as if it had usual_rows. The spec must be valid and the target supported.
    ScheduleSpace(const Spec& spec, const Target& target);
    ~ScheduleSpace();

    static constexpr int64_t usual_rows = 8192;
    /// What the spec fixes of it, and the rest so that there are about usual_rows.
    static Batch usual_batch(const Spec& spec);

    /// Where a search begins: the schedule that the heuristic chooses.
    const Schedule& start() const;

    /// Legal schedules that differ from `schedule` in one field, and in those that cannot stay as they are then. Small
    /// steps come first, one for each field; then larger ones.
    std::vector<Schedule> neighbours(const Schedule& schedule) const;

    /// Legal schedules that the heuristic chooses for problems like this one: narrower and wider rows, fewer and more
    /// of them, the other norm; made to fit this one. What lies beyond the neighbours of a wrong choice.
    std::vector<Schedule> relatives() const;

    /// Whether the work is cut finely enough to share it out on a machine that does other things, too. False for
    /// schedules of a CPU with fewer than two row groups a core, where the heuristic has more.
    bool is_shareable(const Schedule& schedule) const;

    /// The keys of the fields that are searched, as in the schedule's text.
    std::vector<std::string_view> keys() const;

  private:
    struct Impl;
    std::unique_ptr<const Impl> impl_;
};

}  // namespace normjit
