// SPDX-License-Identifier: Apache-2.0
#include "schedule/dimensions.h"
#include "schedule/heuristics.h"
#include "support/contains.h"
#include "support/divide.h"

#include <algorithm>

namespace normjit::schedule {

namespace {

using Values = std::vector<int64_t>;

const CpuSchedule& cpu_of(const Schedule& schedule) { return std::get<CpuSchedule>(schedule.device); }

Values powers_of_two(int64_t most) {
    Values values = {1};
    while (values.back() * 2 <= most) values.push_back(values.back() * 2);
    return values;
}

/// Returns the heuristic's number of groups, one group and multiples of the number of cores. If there is more than one
/// per core, groups have at least 2 rows, or 16 if there are column sums, of which each group has partials.
Values row_groups(const SearchedProblem& p, const Schedule&) {
    const int64_t least_rows = p.operands.reductions().empty() ? 2 : 16;
    const int64_t most = std::max<int64_t>(p.rows / least_rows, std::min<int64_t>(p.rows, p.target.cpu.cores));
    const int64_t least = least_tasks(p, p.heuristic.row_groups);
    Values values = {p.heuristic.row_groups};
    for (const int64_t each : {0, 1, 2, 4, 8, 16}) {
        const int64_t groups = std::clamp<int64_t>(each * p.target.cpu.cores, 1, most);
        if (groups >= least && !contains(values, groups)) values.push_back(groups);
    }
    return values;
}

Values row_blocks(const SearchedProblem& p, const Schedule&) {
    return powers_of_two(std::clamp<int64_t>(p.rows, 1, 32));
}

/// Returns widths up to the number of vectors in a row: wider strips or steps would give the same loop.
Values vectors(const SearchedProblem& p, const Schedule&) {
    const int64_t lanes = 64 / static_cast<int64_t>(size_of(p.spec.compute()));
    return powers_of_two(std::clamp<int64_t>(divide_up(p.spec.cols, lanes), 1, 8));
}

/// `unroll` decides the order of a row's sums, so it is fixed with `invariant`.
Values unrolls(const SearchedProblem& p, const Schedule& schedule) {
    return p.spec.invariant ? Values{cpu_of(p.heuristic).unroll} : vectors(p, schedule);
}

Values cache_columns(const SearchedProblem& p, const Schedule&) {
    if (p.spec.invariant) return {cpu_of(p.heuristic).cache_columns};
    return p.operands.columns().empty() ? Values{0} : Values{0, 1};
}

/// Caching avoids a second conversion, or the functions that the heuristic found to be slow. Legality decides what
/// fits.
Values cache_elements(const SearchedProblem& p, const Schedule& schedule) {
    const bool converts = p.operands.matrices()[0].dtype != p.spec.compute() && p.spec.writes_matrices();
    const bool can = cpu_of(schedule).split_rows == 0;
    return (converts || cpu_of(p.heuristic).cache_elements == 1) && can ? Values{0, 1} : Values{0};
}

/// Legality decides which specs have two sweeps.
Values overlaps(const SearchedProblem& p, const Schedule& schedule) {
    const CpuSchedule& cpu = cpu_of(schedule);
    const bool fetches_next = cpu.prefetch == 1 || cpu.prefetch == 2;
    const bool can = p.spec.writes_matrices() && !p.spec.invariant && cpu.cache_elements == 0 && !fetches_next;
    return can ? Values{0, 1} : Values{0};
}

Values prefetches(const SearchedProblem&, const Schedule&) { return {0, 1, 2, 3}; }

/// Returns the heuristic's threshold and, if the columns can be split, one that decides the opposite for this problem:
/// that its rows are few where the heuristic has many, or many where it has few.
Values split_rows(const SearchedProblem& p, const Schedule&) {
    const int64_t usual = cpu_of(p.heuristic).split_rows;
    if (p.target.cpu.cores == 1 || p.spec.cols < 2 * least_range_columns || p.spec.invariant ||
        p.spec.group_columns() > 0)
        return {usual};
    return p.rows <= usual ? Values{usual, 0} : Values{usual, INT64_MAX};
}

/// Returns numbers of thread groups that leave each group at least two threads.
Values thread_groups(const SearchedProblem& p, const Schedule& schedule) {
    Values values = {cpu_of(p.heuristic).thread_groups};
    if (cpu_of(schedule).split_rows < p.rows) return values;
    for (int64_t each = 1; each <= std::min<int64_t>(p.target.cpu.cores / 2, p.rows); each *= 2) {
        if (each != values.front()) values.push_back(each);
    }
    return values;
}

Values column_ranges(const SearchedProblem& p, const Schedule& schedule) {
    Values values = {cpu_of(p.heuristic).column_ranges};
    if (cpu_of(schedule).split_rows < p.rows) return values;
    const int64_t thread_groups = cpu_of(schedule).thread_groups;
    for (const int64_t each : {1, 2, 4}) {
        const int64_t ranges = std::min(each * p.target.cpu.cores / thread_groups,
                                        std::min<int64_t>(p.spec.cols / least_range_columns, 1024));
        if (ranges * thread_groups < least_tasks(p, values.front() * cpu_of(p.heuristic).thread_groups)) continue;
        if (!contains(values, ranges)) values.push_back(ranges);
    }
    return values;
}

/// Returns the heuristic's threshold, and one on the other side of this problem's traffic. Data that fits L2 stays
/// there: the next reader of dx finds it in the cache, which measurements of this kernel alone do not show.
Values nontemporal_kbs(const SearchedProblem& p, const Schedule&) {
    if (!p.spec.writes_matrices()) return {cpu_of(p.heuristic).nontemporal_kb};
    const int64_t usual = cpu_of(p.heuristic).nontemporal_kb;
    const int64_t traffic = bytes_moved(p.spec, p.rows);
    const bool past_caches = usual >= 0 && traffic / 1024 >= usual;
    if (!past_caches && traffic < p.target.cpu.cores * p.target.cpu.l2_bytes) return {usual};
    return {usual, past_caches ? -1 : 0};
}

constexpr Dimension table[] = {
    dimension<&CpuSchedule::row_block>("row_block", row_blocks),
    dimension<&CpuSchedule::strip>("strip", vectors),
    dimension<&CpuSchedule::unroll>("unroll", unrolls),
    dimension<&CpuSchedule::cache_columns>("cache_columns", cache_columns),
    dimension<&CpuSchedule::prefetch>("prefetch", prefetches),
    dimension<&CpuSchedule::split_rows>("split_rows", split_rows),
    dimension<&CpuSchedule::cache_elements>("cache_elements", cache_elements),
    dimension<&CpuSchedule::overlap>("overlap", overlaps),
    dimension<&CpuSchedule::thread_groups>("thread_groups", thread_groups),
    dimension<&CpuSchedule::column_ranges>("column_ranges", column_ranges),
    dimension<&CpuSchedule::nontemporal_kb>("nontemporal_kb", nontemporal_kbs),
    dimension<&Schedule::row_groups>("row_groups", row_groups),
};

}  // namespace

std::span<const Dimension> cpu_dimensions() { return table; }

int64_t least_tasks(const SearchedProblem& p, int64_t usual) {
    return std::clamp<int64_t>(usual, 1, int64_t{2} * p.target.cpu.cores);
}

}  // namespace normjit::schedule
