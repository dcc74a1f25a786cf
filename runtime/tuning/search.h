// SPDX-License-Identifier: Apache-2.0
// Which schedule to measure next: first, in turn, the heuristic's neighbours and those that the model likes, spread
// over the space; then the neighbours of the fastest, and those of the fastest of them, until nothing near is faster. A
// short search is worth most near the heuristic: of 15 shapes, 60 candidates each, the winners of 9 were at most three
// steps from it, and seeds from the model had 0.6 to 0.9 of its speed (H200, 2026-11-21).
#pragma once

#include "normjit/space.h"

#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

namespace normjit::tuning {

struct SearchLimits {
    size_t most = 64;   ///< schedules to measure, the heuristic's not counted
    size_t seeds = 24;  ///< of them from the model
};

class Search {
  public:
    /// `hints` are measured first: what was fastest for something similar. They must be legal.
    Search(const ScheduleSpace& space, const SearchLimits& limits, const std::vector<Schedule>& hints = {});

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
    const SearchLimits limits_;
    Schedule heuristic_;
    std::deque<Schedule> queue_;
    std::unordered_set<uint64_t> known_;
    std::vector<Result> results_;  ///< the fastest first
    std::optional<Schedule> current_;
    size_t measured_ = 0;
};

}  // namespace normjit::tuning
