// SPDX-License-Identifier: Apache-2.0
#include "normjit/cuda_path.h"

#include "support/divide.h"

#include <algorithm>
#include <numeric>

namespace normjit {

namespace {

/// The most row groups whose blocks fit a grid even in the largest clusters.
constexpr int64_t most_grid = INT32_MAX / 16;

}  // namespace

std::string_view name(CudaGrid grid) {
    constexpr std::string_view names[] = {"row_groups", "one_group", "rows", "columns_by_row_groups",
                                          "columns_by_outputs"};
    return names[static_cast<size_t>(grid)];
}

CudaLaunch::Blocks CudaLaunch::grid_of(const Geometry& geometry, int64_t rows, const RowPartition& partition) const {
    constexpr int64_t most_z = 65535;
    switch (grid) {
        case CudaGrid::row_groups: return {partition.row_groups * cluster, 1};
        case CudaGrid::one_group: return {cluster, 1};
        case CudaGrid::rows: return {std::min(rows, blocks), 1};
        case CudaGrid::columns_by_row_groups: return {blocks, partition.row_groups};
        case CudaGrid::columns_by_outputs: break;
    }
    return {blocks, geometry.cuda.final_outputs, std::min(partition.reduced_slices, most_z)};
}

int64_t CudaPath::alignment(DType type) const {
    constexpr int64_t widest_access = 16;
    return std::min(widest_access, vector_width * static_cast<int64_t>(size_of(type)));
}

/// Returns `groups` rounded down so that every team takes only rows that start at the same position in a vector. The
/// result may be 0. `most` groups are not rounded, because each team then has a single row.
int64_t CudaPath::whole_shifts(int64_t groups, int64_t most) const {
    if (!shifted || groups == most) return groups;
    const int64_t unit = vector_width / std::gcd(vector_width, rows_per_block);
    return groups / unit * unit;
}

/// True if all pieces of a row group start at the same position in a vector. A row group takes every row_groups-th
/// piece. If `parts` divides row_groups, these are the same part of different slices.
bool CudaPath::pieces_start_alike(const RowPartition& partition, int64_t row_stride, int64_t slice_stride) const {
    if (partition.pieces <= partition.row_groups) return true;
    if (partition.row_groups % partition.parts == 0)
        return partition.row_groups / partition.parts * slice_stride % vector_width == 0;
    return slice_stride % vector_width == 0 && rows_per_block * row_stride % vector_width == 0;
}

/// Returns the number of row groups that rows_per_team requires, limited so that blocks and teams can be counted in 31
/// bits.
int64_t CudaPath::short_groups(int64_t with_rows) const {
    if (rows_per_team == 0) return 0;
    const int64_t most = std::min<int64_t>(most_grid, INT32_MAX / rows_per_block);
    return std::min(divide_up(with_rows, rows_per_team), most);
}

int64_t CudaPath::groups(const Geometry& geometry, int64_t rows, int64_t workspace_bytes) const {
    const int64_t with_rows = divide_up(rows, rows_per_block);
    return whole_shifts(std::max(std::min(geometry.groups(rows, workspace_bytes), with_rows), short_groups(with_rows)),
                        with_rows);
}

RowPartition CudaPath::partition(const OperandList& operands, const Geometry& geometry, Batch batch,
                                 int64_t workspace_bytes) const {
    if (operands.has_per_slice()) return partition_slices(operands, geometry, batch, workspace_bytes);
    const int64_t all = groups(geometry, batch.all_rows(), workspace_bytes);
    return {.row_groups = all, .parts = all, .pieces = all};
}

/// Tries a few numbers of rounds and chooses the fastest. A part costs the time of its rows, and of about two more for
/// loading columns, filling and draining the pipeline, and writing sums. Without sums over all slices, each part has
/// its own row group, and the GPU assigns blocks to multiprocessors as they become free.
RowPartition CudaPath::partition_slices(const OperandList& operands, const Geometry& geometry, Batch batch,
                                        int64_t workspace_bytes) const {
    constexpr int64_t overhead_rows = 2, most_rounds = 8;
    constexpr int64_t most_groups = 65535;  // the limit of a grid's second dimension
    const bool has_sums = operands.has_sums_per_slice(), has_shared_sums = operands.has_shared_sums();
    RowPartition none{.reduced_slices = has_sums ? std::max<int64_t>(batch.slices, has_shared_sums ? 1 : 0) : 1};
    const int64_t rows = batch.all_rows();
    const int64_t row_groups = std::min(geometry.row_groups, geometry.partials(rows, workspace_bytes));
    if (rows == 0 || row_groups == 0) return none;
    const int64_t with_rows = divide_up(batch.rows, rows_per_block);
    const int64_t partials = has_sums ? geometry.partials(rows, workspace_bytes) / batch.slices : with_rows;
    const int64_t most = std::clamp<int64_t>(partials, 1, with_rows);
    if (const int64_t parts = whole_shifts(short_groups(with_rows), with_rows); parts > 0) {
        const int64_t pieces = parts * batch.slices;
        return {.row_groups = std::min(pieces, most_grid), .parts = parts, .pieces = pieces, .reduced_slices = 0};
    }
    RowPartition best = none;
    double least = 0;
    for (int64_t round = 0; round <= most_rounds; ++round) {
        const int64_t wanted = round == 0 ? 1 : std::clamp<int64_t>(round * row_groups / batch.slices, 1, most);
        const int64_t parts = whole_shifts(wanted, with_rows);
        if (parts == 0) continue;
        const int64_t pieces = parts * batch.slices;
        const auto rounds = static_cast<double>(divide_up(pieces, row_groups));
        const double time = rounds * static_cast<double>(divide_up(with_rows, parts) + overhead_rows);
        if (best.parts > 0 && time >= least) continue;
        least = time;
        const int64_t groups = std::min(pieces, has_shared_sums ? row_groups : most_groups);
        best = {.row_groups = groups, .parts = parts, .pieces = pieces};
    }
    best.reduced_slices = has_sums && (best.parts > 1 || geometry.cuda.finishes_slices == 1) ? batch.slices
                          : has_shared_sums                                                  ? 1
                                                                                             : 0;
    if (best.parts == 0) best.reduced_slices = none.reduced_slices;
    return best;
}

}  // namespace normjit
