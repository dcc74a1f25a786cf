// SPDX-License-Identifier: Apache-2.0
#include "support/divide.h"

#include "normjit/artifact.h"

#include <algorithm>
#include <numeric>

namespace normjit {

namespace {

/// a * b, rounded up to the workspace's alignment; INT64_MAX when that does not fit. Neither may be negative.
int64_t aligned_product(int64_t a, int64_t b) {
    int64_t bytes = 0;
    const bool fits =
        !__builtin_mul_overflow(a, b, &bytes) && !__builtin_add_overflow(bytes, workspace_alignment - 1, &bytes);
    return fits ? bytes / workspace_alignment * workspace_alignment : INT64_MAX;
}

}  // namespace

int64_t Geometry::workspace(int64_t rows, int64_t groups) const {
    const int64_t start = aligned_product(row_bytes, std::max<int64_t>(rows, 0));
    int64_t bytes = 0;
    const bool fits =
        !__builtin_mul_overflow(group_bytes, groups, &bytes) && !__builtin_add_overflow(bytes, start, &bytes);
    return fits ? bytes : INT64_MAX;
}

int64_t Geometry::part_sums_bytes(int64_t element_bytes) const {
    constexpr int64_t register_bytes = 64;
    return round_up(block_rows * element_bytes, register_bytes);
}

int64_t Geometry::groups(int64_t rows, int64_t workspace_bytes) const {
    const int64_t left = workspace_bytes - partials_at(rows);
    if (left < 0) return 0;
    return std::min({row_groups, rows, group_bytes == 0 ? row_groups : left / group_bytes});
}

std::string_view name(CudaGrid grid) {
    constexpr std::string_view names[] = {"row_groups", "rows", "columns_by_row_groups", "columns_by_sums"};
    return names[static_cast<size_t>(grid)];
}

CudaLaunch::Blocks CudaLaunch::grid_of(const Geometry& geometry, int64_t rows, int64_t row_groups) const {
    switch (grid) {
        case CudaGrid::row_groups:
            return {row_groups * cluster, 1};
        case CudaGrid::rows:
            return {std::min(rows, blocks), 1};
        case CudaGrid::columns_by_row_groups:
            return {blocks, row_groups};
        case CudaGrid::columns_by_sums:
            break;
    }
    return {blocks, geometry.column_sums};
}

int64_t CudaPath::alignment(DType type) const {
    constexpr int64_t widest_access = 16;
    return std::min(widest_access, vector_width * static_cast<int64_t>(size_of(type)));
}

int64_t CudaPath::groups(const Geometry& geometry, int64_t rows, int64_t workspace_bytes) const {
    const int64_t with_rows = rows / rows_per_block + (rows % rows_per_block != 0 ? 1 : 0);
    const int64_t groups = std::min(geometry.groups(rows, workspace_bytes), with_rows);
    if (!shifted || groups == with_rows) return groups;
    const int64_t unit = vector_width / std::gcd(vector_width, rows_per_block);
    return groups / unit * unit;
}

}  // namespace normjit
