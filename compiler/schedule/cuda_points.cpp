// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_points.h"

#include "plan/cuda.h"
#include "schedule/heuristics.h"
#include "schedule/points.h"
#include "support/divide.h"

#include "normjit/kernel_spec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

/// The weight of idle_lanes() in the distance, if a point's schedule has idle lanes here but not in its own problem.
constexpr double idle_weight = 3;

/// Returns the distance between devices. The less the points of `a` say about `b`, the larger it is. It is 0 for GPUs
/// of the same architecture with about as many multiprocessors and about as much memory.
double device_distance(const CudaTarget& a, const CudaTarget& b) {
    constexpr double about = 0.07, other_architecture = 1, any_difference = 1;  // 0.07 is a factor of 1.05
    const auto ratio = [](auto x, auto y) {
        return std::fabs(
            std::log2(static_cast<double>(std::max<int64_t>(x, 1)) / static_cast<double>(std::max<int64_t>(y, 1))));
    };
    const double processors = ratio(a.sm_count, b.sm_count), shared = ratio(a.shared_bytes, b.shared_bytes),
                 cache = ratio(a.l2_bytes, b.l2_bytes);
    if (a.sm == b.sm && std::max({processors, shared, cache}) < about) return 0;
    return any_difference + (a.sm == b.sm ? 0 : other_architecture) + processors + shared + cache;
}

/// A point, and its distance from a problem on a target.
struct Near {
    const PointSet::Source* source;
    const PointSet::Source::CudaPoint* found;
    double distance;

    const Point& point() const { return found->point; }
    const CudaFeatures& features() const { return found->features; }
    const CudaSchedule& schedule() const { return std::get<CudaSchedule>(point().schedule.device); }
};

/// Finds the points, nearest first. A point is parsed only when no other can be nearer than the lower bound of its
/// distance.
class NearestPoints {
  public:
    NearestPoints(const PointSet& points, const CudaFeatures& features, const Target& target) : features_(features) {
        const CudaGlance here = glance(features);
        for (const auto& source : points.sources()) {
            const double of_device = device_distance(source->target.cuda, target.cuda);
            for (const auto& line : source->cuda) {
                const double least = of_device + least_distance(here, line.glance());
                waiting_.push_back({least, false, waiting_.size(), source.get(), &line, nullptr, of_device});
            }
        }
        std::ranges::make_heap(waiting_, std::greater{}, &Waiting::order);
    }

    std::optional<Near> next() {
        while (!waiting_.empty()) {
            std::ranges::pop_heap(waiting_, std::greater{}, &Waiting::order);
            Waiting nearest = waiting_.back();
            waiting_.pop_back();
            if (nearest.is_parsed) return Near{nearest.source, nearest.found, nearest.distance};
            nearest.found = nearest.line->parse(nearest.source->target);
            if (!nearest.found) continue;
            nearest.distance = nearest.of_device + distance(nearest.found->features, features_);
            nearest.is_parsed = true;
            waiting_.push_back(nearest);
            std::ranges::push_heap(waiting_, std::greater{}, &Waiting::order);
        }
        return std::nullopt;
    }

  private:
    struct Waiting {
        double distance;  ///< a lower bound until it is parsed
        bool is_parsed;
        size_t number;  ///< in the order of the files; the one added last comes first
        const PointSet::Source* source;
        const PointSet::Source::CudaLine* line;
        const PointSet::Source::CudaPoint* found;
        double of_device;

        std::tuple<double, bool, size_t> order() const { return {distance, is_parsed, number}; }
    };

    const CudaFeatures& features_;
    std::vector<Waiting> waiting_;  ///< a heap with the nearest on top
};

/// Returns the smallest allowed number of threads per row that is at least `wanted`.
int64_t allowed_threads(int64_t wanted) {
    if (wanted > 16) return round_up(wanted, 32);
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted)));
}

class Scaling {
  public:
    explicit Scaling(const CudaFit& fit) : spec_(fit.spec()), target_(fit.target()), features_(fit.features()) {}

    /// Adapts the point's schedule to this problem: it keeps the bytes of a vector, the vectors per thread and the
    /// threads per block. The result may be illegal.
    Schedule operator()(const Near& near) const {
        CudaSchedule s = near.schedule();
        s.vector_width = vector_width(near);
        if (s.form == CudaForm::rows) {
            const int64_t each = vectors_of_thread(near.features().cols, near.schedule());
            s.threads_per_row = static_cast<int>(allowed_threads(divide_up(vectors_of_block(spec_.cols, s), each)));
            if (s.rows_per_block > 1 && s.threads_per_row != near.schedule().threads_per_row) {
                const int threads = near.schedule().rows_per_block * near.schedule().threads_per_row;
                s.rows_per_block =
                    static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(threads / s.threads_per_row, 1))));
            }
        }
        use_possible_staging(s, features_, target_);
        return {.row_groups = row_groups(near, s), .device = s};
    }

    /// Returns the point's cost before schedules are compared. It is below 0 if the point's problem is this one, or
    /// differs in nothing that the schedule depends on; its schedule is then taken as it is. The point of the problem
    /// itself comes first.
    double cost(const Near& near) const {
        const bool is_own = near.distance == 0 && near.features().cols == features_.cols &&
                            near.point().spec.all_rows() == spec_.all_rows();
        if (!is_own) return near.distance;
        return near.point().spec == whole_spec(spec_) ? -2 : -1;
    }

  private:
    /// If the point has the widest vector that divides its rows, returns the widest vector that divides these rows,
    /// else a vector with as many bytes as the point's. If the point's vector divides its rows, the result divides
    /// these rows.
    int vector_width(const Near& near) const {
        const CudaSchedule& s = near.schedule();
        if (s.vector_width == near.features().alignment) return features_.alignment;
        int width = std::max(features_.width * s.vector_width / near.features().width, 1);
        const bool divides = near.features().cols % s.vector_width == 0;
        while ((divides || !features_.can_shift) && spec_.cols % width != 0) width /= 2;
        return width;
    }

    /// Returns as many row groups as run at once, unless the point has fewer or more than that. If it has fewer, each
    /// group here takes more turns by the same factor. If it has more, so does this problem, by the same factor, unless
    /// each group would take few turns or less than half as many as the point's.
    int64_t row_groups(const Near& near, const CudaSchedule& s) const {
        const int64_t most = cuda_row_groups(spec_, target_, s);
        const int64_t groups_there = near.point().schedule.row_groups, most_there = near.found->most_groups;
        const auto rows = spec_.all_rows(), rows_there = near.point().spec.all_rows();
        if (groups_there == most_there || !rows) return most;
        if (groups_there == 1 && *rows <= *rows_there) return 1;
        const auto turns = [](int64_t of_rows, const CudaSchedule& of, int64_t groups) {
            return divide_up(divide_up(of_rows, of.rows_per_block), groups);
        };
        const int64_t unit = unit_of_groups(spec_, s), turns_there = turns(*rows_there, near.schedule(), groups_there);
        if (groups_there > most_there) {
            constexpr int64_t few_turns = 4;
            const int64_t more = round_up(most * groups_there / most_there, unit), least = turns(*rows, s, more);
            return more <= most_cuda_row_groups && least >= few_turns && 2 * least >= turns_there ? more : most;
        }
        const int64_t wanted =
            std::max<int64_t>(turns(*rows, s, most) * turns_there / turns(*rows_there, near.schedule(), most_there), 1);
        return std::clamp<int64_t>(round_up(turns(*rows, s, wanted), unit), 1, most);
    }

    const Spec& spec_;
    const Target& target_;
    const CudaFeatures& features_;
};

}  // namespace

std::string describe(const CudaFromPoint& from) {
    return fmt::format("point of {}{}, distance {:.2f}: {}", from.source->name,
                       from.is_alike ? "" : fmt::format(" ({}, another GPU)", from.source->device), from.distance,
                       to_text(from.point->spec));
}

std::vector<CudaFromPoint> find_in_points(const PointSet& points, const CudaFit& fit, size_t count) {
    const Spec& spec = fit.spec();
    const Target& target = fit.target();
    const CudaFeatures& features = fit.features();
    const Scaling scaled(fit);
    struct Found {
        Schedule schedule;
        Near near;
        double cost;
    };
    std::vector<Found> found;  // the cheapest first
    NearestPoints nearest(points, features, target);
    while (const std::optional<Near> next = nearest.next()) {
        const Near& each = *next;
        if (found.size() == count && each.distance >= found.back().cost) break;
        double cost = scaled.cost(each);
        const bool is_own = cost < 0;
        Schedule schedule = is_own ? each.point().schedule : scaled(each);
        auto& s = std::get<CudaSchedule>(schedule.device);
        if (s.form == CudaForm::rows) {
            cost += idle_weight *
                    std::max(idle_lanes(spec.cols, s) - idle_lanes(each.features().cols, each.schedule()), 0.0);
        }
        if (s.threads_per_row > 1024) continue;
        if (is_own ? !fit.is_legal(s) : !fit.is_comfortable(s)) {
            if (!fit.make_comfortable(s)) continue;
            schedule.row_groups = std::min(schedule.row_groups, cuda_row_groups(spec, target, s));
        }
        if (!features.reduces || schedule.row_groups == 1) s.pace = 0, s.pace_slack = 1;
        const auto same = std::ranges::find(found, schedule, &Found::schedule);
        if (same != found.end() && same->cost <= cost) continue;
        if (same != found.end()) found.erase(same);
        found.insert(std::ranges::upper_bound(found, cost, {}, &Found::cost), {schedule, each, cost});
        if (found.size() > count) found.pop_back();
    }
    std::vector<CudaFromPoint> schedules;
    for (const Found& each : found) {
        const PointSet::Source& source = *each.near.source;
        const bool is_alike = device_distance(source.target.cuda, target.cuda) == 0;
        schedules.push_back({each.schedule, &source, &each.near.point(), each.near.distance, is_alike});
    }
    return schedules;
}

}  // namespace normjit::schedule
