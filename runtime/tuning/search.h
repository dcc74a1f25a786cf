// SPDX-License-Identifier: Apache-2.0
// Which schedule to measure next: the heuristic's neighbours, then those of the fastest, and those of the fastest of
// them, until nothing near is faster. Schedules far away that a model of the machine proposed took up to three eighths
// of the measurements once: on 12 GPU problems the neighbours alone found as much (0.983 to 1.015), on 10 CPU problems
// they found three gains of 1.06 to 1.33 that the others crowded out (H200 and Xeon, 2026-11-22).
#pragma once

#include "normjit/space.h"

#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

namespace normjit::tuning {

class Search {
  public:
    /// `most`: schedules to measure, the heuristic's not counted. `hints` are measured first: what was fastest for
    /// something similar. They must be legal.
    Search(const ScheduleSpace& space, size_t most, const std::vector<Schedule>& hints = {});

    const Schedule& heuristic() const { return heuristic_; }

    /// The schedule to measure now, to be followed by report(); nothing when the search is over.
    std::optional<Schedule> next();
    /// Those that next() is likely to hand out afterwards: their code can be made meanwhile.
    std::vector<Schedule> ahead(size_t count) const;
    /// How many times as fast as the heuristic the last one was; nothing: it does not run or is wrong.
    void report(std::optional<double> gain);

    /// The fastest so far, the fastest first; none that was slower than the heuristic by more than `slack`.
    std::vector<Schedule> best(size_t count, double slack) const;
    double best_gain() const;
    size_t measured() const { return measured_; }

  private:
    struct Result {
        Schedule schedule;
        double gain;
        bool expanded;
    };
    void add(const std::vector<Schedule>& schedules);
    bool expand();

    const ScheduleSpace& space_;
    const size_t most_;
    const Schedule heuristic_;
    std::deque<Schedule> queue_;
    std::unordered_set<uint64_t> known_;
    std::vector<Result> results_;  ///< the fastest first
    std::optional<Schedule> current_;
    size_t measured_ = 0;
};

}  // namespace normjit::tuning
