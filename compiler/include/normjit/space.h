// SPDX-License-Identifier: Apache-2.0
// Schedules worth measuring, and what a model of the machine expects of each before it is measured.
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

/// What a launch over some rows is expected to cost. Made to order schedules of one problem and to drop hopeless ones:
/// its seconds rest on the data sheet of a common device of the target's kind, so only their ratios mean anything.
struct Prediction {
    int64_t bytes = 0;    ///< to and from memory: every tensor once, what is read again, and the partials
    double seconds = 0;   ///< the slowest of memory, arithmetic and waiting, and what starting costs
    double memory = 0;    ///< seconds that moving the bytes takes
    double compute = 0;   ///< seconds that the arithmetic takes
    double overhead = 0;  ///< seconds of starting launches and tasks
};

/// Any schedule of the target's kind with numbers in their ranges, legal or not.
Prediction predict(const Spec& spec, const Schedule& schedule, const Target& target, int64_t rows);

/// The schedules of one problem that differ in ways that can matter: for each field of the schedule the values worth
/// trying, those that the fields before it and the problem's size leave room for.
class ScheduleSpace {
  public:
    /// A spec without rows is searched as if it had usual_rows. The spec must be valid and the target supported.
    ScheduleSpace(const Spec& spec, const Target& target);
    ~ScheduleSpace();

    static constexpr int64_t usual_rows = 8192;

    /// The heuristic's schedule, then legal ones: predicted to be fast, and unlike those before them. Any two differ in
    /// at least two fields: what lies between them is found through neighbours(). None is predicted to take more than
    /// 3 times as long as the best.
    std::vector<Schedule> candidates(size_t most) const;

    /// Legal schedules that differ from `schedule` in one field, and in those that cannot stay as they are then;
    /// predicted to take at most 1.5 times as long, and ordered by that.
    std::vector<Schedule> neighbours(const Schedule& schedule) const;

    /// Whether the work is cut finely enough to share it out on a machine that does other things, too; candidates and
    /// neighbours are. False for schedules of a CPU with fewer than two row groups a core, where the heuristic has
    /// more.
    bool is_shareable(const Schedule& schedule) const;

    /// The keys of the fields that are searched, as in the schedule's text.
    std::vector<std::string_view> keys() const;

  private:
    struct Impl;
    std::unique_ptr<const Impl> impl_;
};

}  // namespace normjit
