// SPDX-License-Identifier: Apache-2.0
// Chooses a CUDA schedule without measuring: takes the schedules of the nearest measured points, and returns the one
// that should be the fastest here. If none of them fits, a search finds the fewest blocks and vectors per thread that
// hold a row.
#include "plan/cuda.h"
#include "schedule/cuda_cost.h"
#include "schedule/cuda_fit.h"
#include "schedule/cuda_points.h"
#include "schedule/heuristics.h"
#include "support/divide.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

/// Returns the most promising schedule of the nearest points. A point of the problem itself has been measured.
std::optional<Schedule> from_points(const CudaFit& fit, const PointSet& points, Reasons reasons) {
    const std::vector<CudaFromPoint> found = find_in_points(points, fit, compared_points);
    if (found.empty()) return std::nullopt;
    if (found.front().distance == 0) {
        reasons.note([&] { return describe(found.front()); });
        return found.front().schedule;
    }
    std::vector<double> costs;
    for (const CudaFromPoint& each : found)
        costs.push_back(cuda_cost(fit.features(), fit.target().cuda, each.schedule));
    const auto least = std::ranges::min_element(costs);
    const CudaFromPoint& chosen = found[static_cast<size_t>(least - costs.begin())];
    reasons.note([&] { return describe(chosen); });
    reasons.note([&] {
        return fmt::format("the best of {} schedules of points: predicted to take {:.2f} times the least time",
                           found.size(), std::exp(*least));
    });
    return chosen.schedule;
}

/// Returns the schedule that holds a row in the fewest blocks and then the fewest vectors per thread; none if no
/// cluster can hold it.
std::optional<CudaSchedule> whole_rows(const CudaFit& fit) {
    const CudaFeatures& problem = fit.features();
    constexpr int most_steps = 32, most_threads = 1024, warp = 32;
    for (int cluster = 1; cluster <= plan::largest_cluster(fit.target()); cluster *= 2) {
        const int64_t vectors = divide_up(plan::vectors_of_row(problem.cols, problem.widest_load()), cluster);
        for (int steps = 1; steps <= most_steps; ++steps) {
            const auto threads = static_cast<int>(round_up(divide_up(vectors, steps), warp));
            if (threads > most_threads) continue;
            CudaSchedule s{.threads_per_row = threads,
                           .cluster = cluster,
                           .vector_width = problem.widest_load(),
                           .pipeline_depth = 3};
            for (const CudaMemory memory : {CudaMemory::registers, CudaMemory::shared}) {
                s.staging = CudaStaging::bulk;
                s.row_memory = s.column_memory = memory;
                use_possible_staging(s, problem, fit.target());
                if (fit.make_comfortable(s)) return s;
            }
            if (threads == warp) break;
        }
    }
    return std::nullopt;
}

/// Returns a schedule that reads rows twice.
CudaSchedule two_pass(const CudaFit& fit) {
    CudaSchedule s{.form = CudaForm::two_pass,
                   .threads_per_row = 256,
                   .blocks_per_sm = 4,
                   .vector_width = fit.features().widest_load(),
                   .pipeline_depth = 2};
    while (s.blocks_per_sm > 1 && !fit.is_comfortable(s)) --s.blocks_per_sm;
    while (s.pipeline_depth > 1 && !fit.is_comfortable(s)) --s.pipeline_depth;
    while (s.vector_width > plan::cuda_least_width(fit.spec()) && !fit.is_comfortable(s)) s.vector_width /= 2;
    return s;
}

CudaSchedule without_points(const CudaFit& fit, Reasons reasons) {
    const auto rows = whole_rows(fit);
    reasons.note([&] {
        return std::string(rows ? "the fewest blocks, then vectors a thread, in which a row fits"
                                : "rows that fit no cluster");
    });
    return rows ? *rows : two_pass(fit);
}

Schedule choose(const Spec& spec, const Target& target, const PointSet& points, Reasons reasons) {
    const OperandList operands(spec);
    const CudaFit fit(spec, target, operands);
    if (const auto schedule = from_points(fit, points, reasons)) return *schedule;
    const CudaSchedule s = without_points(fit, reasons);
    return {.row_groups = cuda_row_groups(spec, target, s), .device = s};
}

}  // namespace

int64_t unit_of_groups(const Spec& spec, const CudaSchedule& s) {
    return spec.cols % s.vector_width == 0 ? 1 : s.vector_width / std::gcd(s.vector_width, s.rows_per_block);
}

/// A GPU's clusters lie inside groups of multiprocessors, in which some multiprocessors are switched off. The rest of a
/// group may be too small for one more cluster (NOTES N-710).
int64_t cuda_row_groups(const Spec& spec, const Target& target, const CudaSchedule& s) {
    int64_t blocks = target.cuda.sm_count;
    if (s.cluster == 4 || s.cluster == 8) blocks = blocks * 10 / 11;
    if (s.cluster == 16) blocks = blocks * 28 / 33;
    int64_t groups = std::max<int64_t>(blocks / s.cluster, 1) * s.blocks_per_sm;
    if (s.form == CudaForm::two_pass) {
        const int64_t tiles = divide_up(spec.cols, int64_t{s.threads_per_row} * s.vector_width);
        groups = std::max<int64_t>(divide_up(groups, tiles), 1);
    }
    const auto rows = spec.all_rows();
    const int64_t most = rows ? divide_up(*rows, s.rows_per_block) : INT64_MAX;
    const int64_t unit = unit_of_groups(spec, s);
    groups = std::max(groups / unit * unit, unit);
    return std::clamp<int64_t>(std::min(groups, most), 1, most_cuda_row_groups);
}

std::vector<Schedule> cuda_schedules_of_points(const Spec& spec, const Target& target, const PointSet& points,
                                               size_t count) {
    const OperandList operands(spec);
    const CudaFit fit(spec, target, operands);
    std::vector<Schedule> schedules;
    for (CudaFromPoint& each : find_in_points(points, fit, count)) schedules.push_back(std::move(each.schedule));
    return schedules;
}

/// With `invariant`, the bits of a row must not depend on the number of rows: only the row groups may depend on it.
Schedule heuristic_cuda(const Spec& spec, const Target& target, const PointSet& points, Reasons reasons) {
    if (!spec.invariant || !spec.rows) return choose(spec, target, points, reasons);
    Spec any_batch = spec;
    any_batch.rows.reset();
    Schedule schedule = choose(any_batch, target, points, reasons);
    auto& s = std::get<CudaSchedule>(schedule.device);
    schedule.row_groups = std::min(schedule.row_groups, cuda_row_groups(spec, target, s));
    if (schedule.row_groups == 1) s.pace = 0, s.pace_slack = 1;
    return schedule;
}

}  // namespace normjit::schedule
