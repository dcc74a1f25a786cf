// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"
#include "plan/plan.h"
#include "schedule/ranges.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit {

namespace schedule {

namespace {

Status check_range(std::string_view key, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return {};
    return invalid_argument(fmt::format("schedule: {}={}: must be {} to {}", key, value, low, high));
}

Status check_ranges(const CpuSchedule& cpu) {
    NORMJIT_RETURN_IF_ERROR(check_range("row_block", cpu.row_block, 1, 64));
    NORMJIT_RETURN_IF_ERROR(check_range("strip", cpu.strip, 1, 8));
    NORMJIT_RETURN_IF_ERROR(check_range("unroll", cpu.unroll, 1, 8));
    NORMJIT_RETURN_IF_ERROR(check_range("stage", cpu.stage, 0, 1));
    NORMJIT_RETURN_IF_ERROR(check_range("prefetch", cpu.prefetch, 0, 1));
    return check_range("stream_kb", cpu.stream_kb, -1, int64_t{1} << 40);
}

}  // namespace

Status check_ranges(const Schedule& schedule, const Target& target) {
    if (target.isa == Isa::cuda) return unavailable("schedule: no CUDA schedules in this build");
    NORMJIT_RETURN_IF_ERROR(check_range("row_groups", schedule.row_groups, 1, 1 << 20));
    const auto* cpu = std::get_if<CpuSchedule>(&schedule.device);
    if (cpu == nullptr) {
        return invalid_argument(
            fmt::format("schedule: a cuda schedule for target '{}'; must be of kind cpu", to_text(target)));
    }
    return check_ranges(*cpu);
}

}  // namespace schedule

Status legality(const Spec& spec, const Schedule& schedule, const Target& target) {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    NORMJIT_TRY(const backend::Backend* backend, backend::find(target));
    NORMJIT_TRY(const plan::Plan plan, plan::make(spec, schedule, target));
    return backend->legal(plan);
}

}  // namespace normjit
