// SPDX-License-Identifier: Apache-2.0
#include "tuning/search.h"

#include <algorithm>

namespace normjit::tuning {
namespace {

/// How many of the fastest schedules have their neighbours searched. With only one, noise would decide the direction.
constexpr size_t expanded_places = 2;

}  // namespace

Search::Search(const ScheduleSpace& space, size_t most, const std::vector<Schedule>& hints)
    : space_(space), most_(most), heuristic_(space.start()) {
    known_.insert(hash(heuristic_));
    results_.push_back({heuristic_, 1, true});
    add(hints);
    add(space.neighbours(heuristic_));
}

void Search::add(const std::vector<Schedule>& schedules) {
    for (const Schedule& schedule : schedules) {
        if (!space_.is_shareable(schedule)) continue;
        if (known_.insert(hash(schedule)).second) queue_.push_back(schedule);
    }
}

bool Search::expand() {
    for (size_t i = 0; i < std::min(expanded_places, results_.size()); ++i) {
        if (results_[i].expanded) continue;
        results_[i].expanded = true;
        add(space_.neighbours(results_[i].schedule));
        return true;
    }
    return false;
}

std::optional<Schedule> Search::next() {
    if (measured_ >= most_) return std::nullopt;
    while (queue_.empty()) {
        if (!expand()) return std::nullopt;
    }
    current_ = queue_.front();
    queue_.pop_front();
    return current_;
}

std::vector<Schedule> Search::ahead(size_t count) const {
    const size_t left = most_ - std::min(most_, measured_ + 1);
    const auto number = static_cast<std::ptrdiff_t>(std::min({count, queue_.size(), left}));
    return {queue_.begin(), queue_.begin() + number};
}

void Search::report(std::optional<double> gain) {
    ++measured_;
    if (!gain) return;
    const auto place = std::find_if(results_.begin(), results_.end(), [&](const Result& r) { return r.gain < *gain; });
    results_.insert(place, {*current_, *gain, false});
}

std::vector<Schedule> Search::best(size_t count, double slack) const {
    std::vector<Schedule> best;
    for (const Result& each : results_) {
        if (best.size() == count || each.gain < 1 - slack) break;
        if (each.schedule != heuristic_) best.push_back(each.schedule);
    }
    return best;
}

double Search::best_gain() const { return results_.front().gain; }

}  // namespace normjit::tuning
