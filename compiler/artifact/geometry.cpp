// SPDX-License-Identifier: Apache-2.0
#include "normjit/geometry.h"

#include "support/divide.h"

#include <algorithm>
#include <numeric>

namespace normjit {

namespace {

/// Returns a * b, rounded up to the alignment of the workspace; INT64_MAX if that does not fit. Neither may be
/// negative.
int64_t aligned_product(int64_t a, int64_t b) {
    int64_t bytes = 0;
    const bool fits =
        !__builtin_mul_overflow(a, b, &bytes) && !__builtin_add_overflow(bytes, workspace_alignment - 1, &bytes);
    return fits ? bytes / workspace_alignment * workspace_alignment : INT64_MAX;
}

/// `handed_out` is the number of elements that one thread computes in the time that it takes to hand out a launch.
/// `column_rows` is the cost of gamma and the column sums, in rows (NOTES N-615).
constexpr int64_t handed_out = 40 << 10, column_rows = 2;

}  // namespace

int64_t Geometry::rows_to_share(int64_t cols, int threads) {
    if (threads < 2) return INT64_MAX;
    return (handed_out * threads / (threads - 1) - 1) / cols + 1 - column_rows;
}

int64_t Geometry::rows_past_caches(const OperandList& operands, int64_t cols, int cores, int threads) const {
    if (cpu.nontemporal_bytes < 0 || operands.matrix_outputs().empty()) return INT64_MAX;
    int64_t row_bytes = 0;
    for (const Operand& operand : operands)
        row_bytes += operand.is_matrix() ? operand.axes.width(cols) * operand.bytes() : 0;
    const int64_t all = std::max(cores, 1), taken = std::min<int64_t>(threads, all);
    return divide_up(cpu.nontemporal_bytes / all * taken, row_bytes);
}

int64_t Geometry::spread_bytes(const OperandList& operands, int64_t cols) {
    int64_t bytes = 0;
    for (const Operand& input : operands.columns()) {
        if (input.axes.has_runs()) bytes += round_up(cols * input.bytes(), workspace_alignment);
    }
    return bytes;
}

int64_t Geometry::final_unit(const OperandList& operands, int64_t cols) {
    constexpr int64_t lines = 32;
    int64_t unit = lines;
    for (const Operand& output : operands.reductions()) {
        if (!output.axes.has_runs()) continue;
        const int64_t parts = output.axes.run / std::gcd(unit, output.axes.run);
        if (unit > cols / parts) return round_up(cols, lines);
        unit *= parts;
    }
    return unit;
}

int64_t Geometry::workspace(int64_t rows, int64_t groups) const {
    const int64_t start = aligned_product(cuda.row_bytes, std::max<int64_t>(rows, 0));
    int64_t bytes = 0;
    const bool fits =
        !__builtin_mul_overflow(group_bytes, groups, &bytes) && !__builtin_add_overflow(bytes, start, &bytes);
    return fits ? bytes : INT64_MAX;
}

int64_t CpuGeometry::part_sums_bytes(int64_t element_bytes) const {
    constexpr int64_t register_bytes = 64;
    return round_up(block_rows * element_bytes, register_bytes);
}

int64_t Geometry::partials(int64_t rows, int64_t workspace_bytes) const {
    const int64_t left = workspace_bytes - partials_at(rows);
    const int64_t most = cuda.all_slices == 1 ? INT64_MAX : most_partials();
    if (left < 0) return 0;
    return group_bytes == 0 ? most : std::min(most, left / group_bytes);
}

int64_t Geometry::groups(int64_t rows, int64_t workspace_bytes) const {
    return std::min({row_groups, rows, partials(rows, workspace_bytes)});
}

}  // namespace normjit
