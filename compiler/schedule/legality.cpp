// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"
#include "plan/plan.h"
#include "schedule/ranges.h"
#include "support/try.h"

#include <bit>

#include <fmt/format.h>

namespace normjit {

namespace schedule {

namespace {

/// Row groups are the second dimension of the streaming form's grid.
constexpr int64_t most_grid_y = 65535;

Status check_range(std::string_view key, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return {};
    return invalid_argument(fmt::format("schedule: {}={}: must be {} to {}", key, value, low, high));
}

Status check_power_of_two(std::string_view key, int value, int high) {
    NORMJIT_RETURN_IF_ERROR(check_range(key, value, 1, high));
    if (std::has_single_bit(static_cast<unsigned>(value))) return {};
    return invalid_argument(fmt::format("schedule: {}={}: must be a power of two", key, value));
}

Status check_ranges(const CpuSchedule& cpu) {
    NORMJIT_RETURN_IF_ERROR(check_range("row_block", cpu.row_block, 1, 64));
    NORMJIT_RETURN_IF_ERROR(check_range("strip", cpu.strip, 1, 8));
    NORMJIT_RETURN_IF_ERROR(check_range("unroll", cpu.unroll, 1, 8));
    NORMJIT_RETURN_IF_ERROR(check_range("stage", cpu.stage, 0, 1));
    NORMJIT_RETURN_IF_ERROR(check_range("keep", cpu.keep, 0, 1));
    NORMJIT_RETURN_IF_ERROR(check_range("overlap", cpu.overlap, 0, 1));
    NORMJIT_RETURN_IF_ERROR(check_range("prefetch", cpu.prefetch, 0, 3));
    NORMJIT_RETURN_IF_ERROR(check_range("column_parts", cpu.column_parts, 1, 1024));
    NORMJIT_RETURN_IF_ERROR(check_range("teams", cpu.teams, 1, 1024));
    NORMJIT_RETURN_IF_ERROR(check_range("split_rows", cpu.split_rows, 0, INT64_MAX));
    return check_range("stream_kb", cpu.stream_kb, -1, int64_t{1} << 40);
}

/// What the plan needs to count without overflow, whatever the spec.
Status check_ranges(const CudaSchedule& cuda) {
    NORMJIT_RETURN_IF_ERROR(check_range("threads_per_row", cuda.threads_per_row, 1, 1024));
    NORMJIT_RETURN_IF_ERROR(check_range("rows_per_block", cuda.rows_per_block, 1, 1024));
    NORMJIT_RETURN_IF_ERROR(check_power_of_two("cluster", cuda.cluster, 16));
    NORMJIT_RETURN_IF_ERROR(check_range("blocks_per_sm", cuda.blocks_per_sm, 1, 32));
    NORMJIT_RETURN_IF_ERROR(check_power_of_two("vector_width", cuda.vector_width, 16));
    NORMJIT_RETURN_IF_ERROR(check_range("stages", cuda.stages, 1, 8));
    NORMJIT_RETURN_IF_ERROR(check_range("pace", cuda.pace, 0, 1 << 20));
    return check_range("pace_slack", cuda.pace_slack, 0, 1 << 20);
}

}  // namespace

Status check_ranges(const Schedule& schedule, const Target& target) {
    NORMJIT_RETURN_IF_ERROR(
        check_range("row_groups", schedule.row_groups, 1, target.isa == Isa::cuda ? most_grid_y : 1 << 20));
    const bool wants_cuda = target.isa == Isa::cuda;
    if (std::holds_alternative<CudaSchedule>(schedule.device) != wants_cuda) {
        return invalid_argument(fmt::format("schedule: of kind {}; target '{}' takes kind {}",
                                            wants_cuda ? "cpu" : "cuda", to_text(target), wants_cuda ? "cuda" : "cpu"));
    }
    if (wants_cuda) return check_ranges(std::get<CudaSchedule>(schedule.device));
    return check_ranges(std::get<CpuSchedule>(schedule.device));
}

}  // namespace schedule

Status legality(const Spec& spec, const Schedule& schedule, const Target& target) {
    return backend::make_legal_plan(spec, schedule, target).status();
}

}  // namespace normjit
