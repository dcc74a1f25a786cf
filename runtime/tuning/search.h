// SPDX-License-Identifier: Apache-2.0
// Decides which schedule to measure next: the heuristic's neighbours, then the neighbours of the fastest, and so on,
// until no neighbour is faster. Proposals from a model of the machine were tried and found less (NOTES N-505).
#pragma once

#include "normjit/space.h"

#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

namespace normjit::tuning {

class Search {
  public:
    /// `most` is the number of schedules to measure, not counting the heuristic's. `hints` are measured first: they are
    /// the fastest schedules of similar problems, and must be legal.
    Search(const ScheduleSpace& space, size_t most, const std::vector<Schedule>& hints = {});

    const Schedule& heuristic() const { return heuristic_; }

    /// Returns the schedule to measure now, whose result report() must receive; nothing if the search is over.
    std::optional<Schedule> next();
    /// Returns the schedules that next() is likely to return after this one, so that their code can be made meanwhile.
    std::vector<Schedule> ahead(size_t count) const;
    /// Reports how many times as fast as the heuristic's schedule the last one was; nothing if it does not run or is
    /// wrong.
    void report(std::optional<double> gain);

    /// Returns the fastest schedules so far, fastest first. None is slower than the heuristic's by more than `slack`.
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
    std::vector<Result> results_;  ///< fastest first
    std::optional<Schedule> current_;
    size_t measured_ = 0;
};

}  // namespace normjit::tuning
