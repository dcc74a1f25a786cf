// SPDX-License-Identifier: Apache-2.0
#include "normjit/space.h"

#include "backend/cuda/legal.h"
#include "schedule/cuda_table.h"
#include "schedule/dimensions.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace normjit {

namespace {

using schedule::Dimension;
using schedule::SearchedProblem;

constexpr double hopeless_candidate = 3.0;
constexpr double hopeless_neighbour = 1.5;
constexpr double novelty = 0.4;  // the predicted time that being unlike the others makes up for
constexpr size_t most_ranked = 4000;

struct Ranked {
    double seconds;
    Schedule schedule;
    int differences = 0;  ///< of fields, from all that were chosen so far together
};

void sort_by_seconds(std::vector<Ranked>& ranked) {
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
}

/// The value of the list that is nearest by ratio.
int64_t nearest(const std::vector<int64_t>& values, int64_t wanted) {
    const auto distance = [&](int64_t value) {
        const auto log = [](int64_t x) { return std::log2(static_cast<double>(std::max<int64_t>(x, 0) + 1)); };
        return std::fabs(log(value) - log(wanted));
    };
    return *std::min_element(values.begin(), values.end(),
                             [&](int64_t a, int64_t b) { return distance(a) < distance(b); });
}

}  // namespace

struct ScheduleSpace::Impl {
    Impl(const Spec& problem, const Target& machine)
        : spec(problem),
          target(machine),
          searched{spec, target, problem.rows.value_or(usual_rows), heuristic(problem, machine)},
          dimensions(machine.isa == Isa::cuda ? schedule::cuda_dimensions() : schedule::cpu_dimensions()),
          operands(problem) {}
    Impl(const Impl&) = delete;

    double seconds(const Schedule& schedule) const { return predict(spec, schedule, target, searched.rows).seconds; }

    /// Sorts out most of what is illegal, in a fraction of the time that legality() takes, and what is certain to spill
    /// or to leave some of its blocks waiting for shared memory.
    bool is_worth_a_look(const Schedule& schedule) const {
        const auto* cuda = std::get_if<CudaSchedule>(&schedule.device);
        if (cuda == nullptr) return true;
        constexpr int64_t others = 20;
        const plan::CudaVariant variant = plan::measure_cuda(spec, operands, schedule::most_row_sums, *cuda);
        return backend::cuda::check(spec, operands, variant, target).ok() &&
               backend::cuda::shared_suffices(variant, target) &&
               variant.data_registers + variant.work_registers / 2 + others <= variant.register_limit;
    }

    /// Every combination of values, from dimension `at` on.
    void collect(Schedule& schedule, size_t at, std::vector<Ranked>& all) const {
        if (at == dimensions.size()) {
            if (is_worth_a_look(schedule)) all.push_back({seconds(schedule), schedule, 0});
            return;
        }
        for (const int64_t value : dimensions[at].values(searched, schedule)) {
            dimensions[at].set(schedule, value);
            collect(schedule, at + 1, all);
        }
    }

    int differences(const Schedule& a, const Schedule& b) const {
        int count = 0;
        for (const Dimension& each : dimensions) count += each.get(a) != each.get(b) ? 1 : 0;
        return count;
    }

    bool is_apart(const Schedule& schedule, const std::vector<Schedule>& others) const {
        return std::all_of(others.begin(), others.end(),
                           [&](const Schedule& other) { return differences(schedule, other) >= 2; });
    }

    /// Takes over the value that is nearest wherever a dimension after `changed` no longer has its own.
    void repair(Schedule& schedule, size_t changed) const {
        for (size_t i = changed + 1; i < dimensions.size(); ++i) {
            const std::vector<int64_t> values = dimensions[i].values(searched, schedule);
            const int64_t own = dimensions[i].get(schedule);
            if (std::find(values.begin(), values.end(), own) == values.end())
                dimensions[i].set(schedule, nearest(values, own));
        }
    }

    const Spec spec;
    const Target target;
    const SearchedProblem searched;
    const std::span<const Dimension> dimensions;
    const OperandList operands;
};

ScheduleSpace::ScheduleSpace(const Spec& spec, const Target& target)
    : impl_(std::make_unique<const Impl>(spec, target)) {}

ScheduleSpace::~ScheduleSpace() = default;

std::vector<Schedule> ScheduleSpace::candidates(size_t most) const {
    std::vector<Schedule> chosen = {impl_->searched.heuristic};
    if (most <= 1) return chosen;
    std::vector<Ranked> all;
    Schedule walked = impl_->searched.heuristic;
    impl_->collect(walked, 0, all);
    sort_by_seconds(all);
    const auto hopeless = std::find_if(all.begin(), all.end(), [&](const Ranked& each) {
        return each.seconds > hopeless_candidate * all.front().seconds;
    });
    all.erase(hopeless, all.end());
    if (all.size() > most_ranked) all.resize(most_ranked);
    const auto note = [&](const Schedule& newest) {
        for (Ranked& each : all) each.differences += impl_->differences(each.schedule, newest);
    };
    note(chosen.front());
    while (chosen.size() < most && !all.empty()) {
        // The model cannot tell many apart: of those it likes about as much, the one least like those chosen so far.
        const auto fields = static_cast<double>(impl_->dimensions.size() * chosen.size());
        auto best = all.begin();
        double best_score = INFINITY;
        for (auto each = all.begin(); each != all.end() && each->seconds < best_score; ++each) {
            const double likeness = 1 - each->differences / fields;  // the share of values that the chosen have, too
            const double score = each->seconds * (1 + novelty * likeness);
            if (score < best_score) best = each, best_score = score;
        }
        const Schedule schedule = best->schedule;
        all.erase(best);
        if (!impl_->is_apart(schedule, chosen) || !legality(impl_->spec, schedule, impl_->target).ok()) continue;
        chosen.push_back(schedule);
        note(schedule);
    }
    return chosen;
}

std::vector<Schedule> ScheduleSpace::neighbours(const Schedule& schedule) const {
    const double limit = hopeless_neighbour * impl_->seconds(schedule);
    std::vector<Ranked> found;
    for (size_t i = 0; i < impl_->dimensions.size(); ++i) {
        const Dimension& dimension = impl_->dimensions[i];
        for (const int64_t value : dimension.values(impl_->searched, schedule)) {
            if (value == dimension.get(schedule)) continue;
            Schedule other = schedule;
            dimension.set(other, value);
            impl_->repair(other, i);
            const Ranked ranked{impl_->seconds(other), other, 0};
            if (ranked.seconds <= limit && impl_->is_worth_a_look(other)) found.push_back(ranked);
        }
    }
    sort_by_seconds(found);
    std::vector<Schedule> neighbours;
    for (const Ranked& each : found) {
        const bool known = std::find(neighbours.begin(), neighbours.end(), each.schedule) != neighbours.end();
        if (!known && each.schedule != schedule && legality(impl_->spec, each.schedule, impl_->target).ok())
            neighbours.push_back(each.schedule);
    }
    return neighbours;
}

bool ScheduleSpace::is_shareable(const Schedule& schedule) const {
    const SearchedProblem& p = impl_->searched;
    return p.target.isa == Isa::cuda || schedule.row_groups >= schedule::least_tasks(p, p.heuristic.row_groups);
}

std::vector<std::string_view> ScheduleSpace::keys() const {
    std::vector<std::string_view> keys;
    for (const Dimension& each : impl_->dimensions) keys.push_back(each.key);
    return keys;
}

}  // namespace normjit
