// SPDX-License-Identifier: Apache-2.0
#include "plan/cuda.h"
#include "schedule/cuda_features.h"
#include "schedule/dimensions.h"
#include "schedule/heuristics.h"
#include "support/contains.h"
#include "support/divide.h"

#include <algorithm>

namespace normjit::schedule {

namespace {

using Values = std::vector<int64_t>;

const CudaSchedule& cuda_of(const Schedule& schedule) { return std::get<CudaSchedule>(schedule.device); }
bool is_two_pass(const Schedule& schedule) { return cuda_of(schedule).form == CudaForm::two_pass; }

template <class... T>
Values values_of(T... values) {
    return {static_cast<int64_t>(values)...};
}

Values filter(const Values& values, auto&& allowed) {
    Values kept;
    for (const int64_t value : values) {
        if (allowed(value)) kept.push_back(value);
    }
    return kept.empty() ? Values{values.front()} : kept;
}

/// Two passes never won where one is possible, except for rows that barely fit (NOTES N-711).
Values forms(const SearchedProblem& p, const Schedule&) {
    constexpr int64_t narrowest_streamed = 65536;
    if (is_two_pass(p.heuristic)) return values_of(CudaForm::two_pass, CudaForm::rows);
    if (p.spec.cols < narrowest_streamed) return values_of(CudaForm::rows);
    return values_of(CudaForm::rows, CudaForm::two_pass);
}

/// Returns the greatest width (a load reads at most 16 bytes of the narrowest matrix), half of it, and the heuristic's.
Values vector_widths(const SearchedProblem& p, const Schedule&) {
    const int most = cuda_features(p.spec, p.operands, p.target).widest_load();
    const int64_t widest = std::max(most, cuda_of(p.heuristic).vector_width);
    return filter({widest, widest / 2, cuda_of(p.heuristic).vector_width}, [](int64_t width) { return width > 0; });
}

/// Leaves each block at least 64 vectors of its row. Launches of few rows are faster with blocks as small as that.
Values clusters(const SearchedProblem& p, const Schedule& so_far) {
    if (is_two_pass(so_far)) return {1};
    const int64_t vectors = plan::vectors_of_row(p.spec.cols, cuda_of(so_far).vector_width);
    return filter({1, 2, 4, 8, 16}, [&](int64_t cluster) {
        return cluster <= plan::largest_cluster(p.target) && (cluster == 1 || vectors / cluster >= 64);
    });
}

/// Returns the numbers of threads that give each thread 1, 2, 3, 4, 6 or 8 vectors.
Values threads_per_row(const SearchedProblem& p, const Schedule& so_far) {
    if (is_two_pass(so_far)) return {128, 256, 512};
    const CudaSchedule& s = cuda_of(so_far);
    const int64_t vectors = divide_up(plan::vectors_of_row(p.spec.cols, s.vector_width), s.cluster);
    Values values;
    for (const int64_t steps : {1, 2, 3, 4, 6, 8}) {
        const int64_t wanted = divide_up(vectors, steps);
        int64_t threads = divide_up(wanted, 32) * 32;
        for (int64_t part = 16; part >= wanted && part >= 4; part /= 2) threads = part;
        if (threads <= 1024 && (values.empty() || values.back() != threads)) values.push_back(threads);
    }
    return values.empty() ? Values{1024} : values;
}

/// Returns the numbers of rows that make blocks of 64 to 512 threads, or blocks of one row.
Values rows_per_block(const SearchedProblem& p, const Schedule& so_far) {
    const CudaSchedule& s = cuda_of(so_far);
    if (is_two_pass(so_far) || s.cluster > 1) return {1};
    const int64_t least = std::max(1, 32 / s.threads_per_row);
    return filter({least, 2, 4, 8, 16, 32, 64}, [&](int64_t rows) {
        const int64_t threads = rows * s.threads_per_row;
        return rows == least || (rows > least && threads >= 64 && threads <= 512 && rows <= p.rows);
    });
}

Values blocks_per_sm(const SearchedProblem&, const Schedule& so_far) {
    const CudaSchedule& s = cuda_of(so_far);
    const int64_t threads = int64_t{s.threads_per_row} * s.rows_per_block;
    return filter({1, 2, 3, 4, 6, 8}, [&](int64_t blocks) { return blocks * threads <= 1536; });
}

Values stagings(const SearchedProblem& p, const Schedule& so_far) {
    if (is_two_pass(so_far)) return values_of(CudaStaging::registers);
    if (p.target.cuda.sm < 90) return values_of(CudaStaging::registers, CudaStaging::async);
    return values_of(CudaStaging::registers, CudaStaging::async, CudaStaging::bulk);
}

Values pipeline_depths(const SearchedProblem&, const Schedule& so_far) {
    if (is_two_pass(so_far)) return {1, 2, 4};
    return cuda_of(so_far).staging == CudaStaging::registers ? Values{1, 2, 3} : Values{2, 3, 4, 6};
}

Values row_memories(const SearchedProblem& p, const Schedule& so_far) {
    const CudaSchedule& s = cuda_of(so_far);
    if (s.staging != CudaStaging::registers) return values_of(CudaMemory::registers, CudaMemory::shared);
    if (!p.operands.reductions().empty() || s.pipeline_depth > 1) return values_of(CudaMemory::registers);
    return values_of(CudaMemory::registers, CudaMemory::global);
}

Values column_memories(const SearchedProblem& p, const Schedule& so_far) {
    if (is_two_pass(so_far) || p.operands.columns().empty()) return values_of(CudaMemory::registers);
    if (!p.operands.reductions().empty()) return values_of(CudaMemory::registers, CudaMemory::shared);
    return values_of(CudaMemory::registers, CudaMemory::shared, CudaMemory::global);
}

Values paces(const SearchedProblem& p, const Schedule& so_far) {
    return is_two_pass(so_far) || p.operands.reductions().empty() ? Values{0} : Values{0, 2, 4};
}

/// Returns 0, which means all rows, and a few small numbers: a block with 16 rows is as slow as one with all (NOTES
/// N-702).
Values rows_per_team(const SearchedProblem& p, const Schedule& so_far) {
    return is_two_pass(so_far) || !p.operands.reductions().empty() ? Values{0} : Values{0, 1, 2, 3, 4, 8};
}

Values pace_slacks(const SearchedProblem&, const Schedule& so_far) {
    return cuda_of(so_far).pace > 0 ? Values{1, 2} : Values{1};
}

/// Returns as many groups as run at once; the smallest number that leaves the most rows per group the same; the number
/// with one block less per multiprocessor; a half and a quarter, which have fewer partials; and twice as many, if no
/// group waits for another.
Values row_groups(const SearchedProblem& p, const Schedule& so_far) {
    const CudaSchedule& s = cuda_of(so_far);
    const int64_t full = cuda_row_groups(p.spec, p.target, s);
    const int64_t steps = divide_up(p.rows, s.rows_per_block);
    const int64_t even = divide_up(steps, divide_up(steps, full));
    const int64_t twice = s.pace == 0 && 2 * full <= std::min(steps, most_cuda_row_groups) ? 2 * full : full;
    const int64_t fewer = full * (s.blocks_per_sm - 1) / s.blocks_per_sm;
    Values values = {full};
    for (const int64_t groups : {even, fewer, full / 2, full / 4, twice}) {
        if (groups >= 1 && !contains(values, groups)) values.push_back(groups);
    }
    return values;
}

/// Keeps the heuristic's value if the spec fixes the order of a row's sums, which this field decides.
template <auto field, Values (*values)(const SearchedProblem&, const Schedule&)>
Values unless_invariant(const SearchedProblem& p, const Schedule& so_far) {
    return p.spec.invariant ? values_of(cuda_of(p.heuristic).*field) : values(p, so_far);
}

template <auto field, Values (*values)(const SearchedProblem&, const Schedule&)>
constexpr Dimension of_row_sums(std::string_view key) {
    return dimension<field>(key, unless_invariant<field, values>);
}

constexpr Dimension table[] = {
    of_row_sums<&CudaSchedule::form, forms>("form"),
    of_row_sums<&CudaSchedule::vector_width, vector_widths>("vector_width"),
    of_row_sums<&CudaSchedule::cluster, clusters>("cluster"),
    of_row_sums<&CudaSchedule::threads_per_row, threads_per_row>("threads_per_row"),
    dimension<&CudaSchedule::rows_per_block>("rows_per_block", rows_per_block),
    dimension<&CudaSchedule::blocks_per_sm>("blocks_per_sm", blocks_per_sm),
    dimension<&CudaSchedule::staging>("staging", stagings),
    dimension<&CudaSchedule::pipeline_depth>("pipeline_depth", pipeline_depths),
    dimension<&CudaSchedule::row_memory>("row_memory", row_memories),
    dimension<&CudaSchedule::column_memory>("column_memory", column_memories),
    dimension<&CudaSchedule::rows_per_team>("rows_per_team", rows_per_team),
    dimension<&CudaSchedule::pace>("pace", paces),
    dimension<&CudaSchedule::pace_slack>("pace_slack", pace_slacks),
    dimension<&Schedule::row_groups>("row_groups", row_groups),
};

}  // namespace

std::span<const Dimension> cuda_dimensions() { return table; }

}  // namespace normjit::schedule
