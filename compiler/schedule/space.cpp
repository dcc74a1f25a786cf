// SPDX-License-Identifier: Apache-2.0
#include "normjit/space.h"

#include "backend/cuda/legal.h"
#include "plan/cuda.h"
#include "schedule/cuda_fit.h"
#include "schedule/dimensions.h"
#include "schedule/heuristics.h"
#include "support/contains.h"

#include "normjit/kernel_spec.h"
#include "normjit/points.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace normjit {

namespace {

using schedule::Dimension;
using schedule::SearchedProblem;

double distance(int64_t a, int64_t b) {
    const auto log = [](int64_t x) { return std::log2(static_cast<double>(std::max<int64_t>(x, 0)) + 1); };
    return std::fabs(log(a) - log(b));
}

/// Sorts by the ratio to `from`, nearest first.
void sort_by_distance(std::vector<int64_t>& values, int64_t from) {
    std::ranges::stable_sort(values, {}, [from](int64_t value) { return distance(value, from); });
}

/// Returns the spec with one column sum instead of two, or two instead of one.
Spec with_other_sums(Spec spec) {
    if (spec.formula || !spec.has(Tensor::dgamma)) return spec;
    if (spec.has(Tensor::dbeta)) {
        spec.tensors[Tensor::dbeta].reset();
    } else {
        spec.norm = Norm::layernorm;
        spec.set(Tensor::dbeta, spec.dtype(Tensor::dgamma));
        if (spec.has(Tensor::rstd)) spec.set(Tensor::mean, spec.dtype(Tensor::rstd));
    }
    return spec;
}

}  // namespace

struct ScheduleSpace::Impl {
    Impl(const Spec& problem, const Target& machine)
        : spec(kernel_spec(problem)),
          target(machine),
          operands(spec),
          work(machine.isa == Isa::cuda ? plan::element_work(spec, machine) : plan::ElementWork()),
          searched{spec, target, operands, std::max<int64_t>(usual_batch(problem).all_rows(), 1),
                   heuristic(problem, machine)},
          dimensions(machine.isa == Isa::cuda ? schedule::cuda_dimensions() : schedule::cpu_dimensions()) {}
    Impl(const Impl&) = delete;

    /// False for most illegal schedules, in a fraction of the time that legality() takes, and for those that certainly
    /// spill or leave some blocks waiting for shared memory.
    bool is_worth_a_look(const Schedule& schedule) const {
        const auto* cuda = std::get_if<CudaSchedule>(&schedule.device);
        if (cuda == nullptr) return true;
        const plan::PlannedPath planned = plan::measure_cuda(spec, operands, schedule::most_row_sums, work, *cuda);
        return backend::cuda::check(spec, operands, planned, target).ok() &&
               backend::cuda::shared_suffices(planned, target) &&
               planned.data_registers + planned.work_registers / 2 + plan::least_other_registers <=
                   planned.register_limit;
    }

    bool is_usable(const Schedule& schedule) const {
        return is_worth_a_look(schedule) && usability(spec, schedule, target).ok();
    }

    /// Replaces each value that its dimension no longer offers by the nearest one, beginning with dimension `first`.
    void repair(Schedule& schedule, size_t first) const {
        for (size_t i = first; i < dimensions.size(); ++i) {
            std::vector<int64_t> values = dimensions[i].values(searched, schedule);
            sort_by_distance(values, dimensions[i].get(schedule));
            dimensions[i].set(schedule, values.front());
        }
    }

    /// Adds a schedule if it is usable and not the heuristic's.
    void add_if_new(std::vector<Schedule>& found, Schedule choice) const {
        if (choice == searched.heuristic || contains(found, choice)) return;
        if (is_usable(choice)) found.push_back(std::move(choice));
    }

    const Spec spec;
    const Target target;
    const OperandList operands;
    const plan::ElementWork work;
    const SearchedProblem searched;
    const std::span<const Dimension> dimensions;
};

Batch ScheduleSpace::usual_batch(const Spec& spec) {
    const int64_t slices = spec.slices.value_or(spec.rows ? usual_rows / std::max<int64_t>(*spec.rows, 1) + 1 : 8);
    return {spec.rows.value_or(usual_rows / std::max<int64_t>(slices, 1) + (slices > 1 ? 1 : 0)), slices};
}

ScheduleSpace::ScheduleSpace(const Spec& spec, const Target& target)
    : impl_(std::make_unique<const Impl>(spec, target)) {}

ScheduleSpace::~ScheduleSpace() = default;

const Schedule& ScheduleSpace::start() const { return impl_->searched.heuristic; }

std::vector<Schedule> ScheduleSpace::neighbours(const Schedule& schedule) const {
    std::vector<std::vector<int64_t>> steps;  // the steps that are possible along each dimension
    size_t longest = 0;
    for (const Dimension& dimension : impl_->dimensions) {
        std::vector<int64_t> values = dimension.values(impl_->searched, schedule);
        std::erase(values, dimension.get(schedule));
        sort_by_distance(values, dimension.get(schedule));
        longest = std::max(longest, values.size());
        steps.push_back(std::move(values));
    }
    std::vector<Schedule> found;
    for (size_t step = 0; step < longest; ++step) {
        for (size_t i = 0; i < steps.size(); ++i) {
            if (step >= steps[i].size()) continue;
            Schedule other = schedule;
            impl_->dimensions[i].set(other, steps[i][step]);
            impl_->repair(other, i + 1);
            if (other == schedule || contains(found, other)) continue;
            if (impl_->is_usable(other)) found.push_back(std::move(other));
        }
    }
    return found;
}

std::vector<Schedule> ScheduleSpace::of_points() const {
    const SearchedProblem& p = impl_->searched;
    if (!p.target.is_cuda()) return {};
    constexpr size_t most = 8;
    std::vector<Schedule> found;
    for (const Schedule& each : schedule::cuda_schedules_of_points(p.spec, p.target, PointSet::shipped(), most))
        impl_->add_if_new(found, each);
    return found;
}

std::vector<Schedule> ScheduleSpace::relatives() const {
    const SearchedProblem& p = impl_->searched;
    std::vector<Schedule> found;
    const auto add = [&](Spec other, double cols, double rows) {
        constexpr int64_t widest = 16;  // other widths differ by multiples of it, so the alignment of rows does not
                                        // change
        const int64_t start = other.cols % widest;
        const double vectors = (static_cast<double>(other.cols) * cols - static_cast<double>(start)) / widest;
        other.cols = std::max<int64_t>(std::llround(vectors) * widest + start, 1);
        other.rows = std::max<int64_t>(std::llround(static_cast<double>(p.rows) * rows), 1);
        if (!validate(other).ok()) return;
        Schedule choice = heuristic(other, p.target);
        // Keeps the vectors per thread rather than the number of threads, and as many groups as run at once.
        if (auto* cuda = std::get_if<CudaSchedule>(&choice.device)) {
            cuda->threads_per_row = std::max(1, static_cast<int>(std::lround(cuda->threads_per_row / cols)));
            choice.row_groups = schedule::cuda_row_groups(p.spec, p.target, *cuda);
        }
        impl_->repair(choice, 0);
        impl_->add_if_new(found, std::move(choice));
    };
    for (const double cols : {1.0, 0.5, 2.0, 0.25, 4.0}) {
        for (const double rows : {1.0, 0.125, 8.0}) add(p.spec, cols, rows);
    }
    add(with_other_sums(p.spec), 1, 1);
    return found;
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
