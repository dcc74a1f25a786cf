// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/legal.h"

#include "backend/cpu/plan_queries.h"
#include "support/try.h"

#include <string_view>

#include <fmt/format.h>

namespace normjit::backend::cpu {

namespace {

/// The most stack that cached elements may take, because a thread's stack may be small. More than 16 KiB gains nothing
/// (NOTES N-612).
constexpr int64_t most_kept_bytes = 16 << 10;

Status may_overlap(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    const auto refuse = [](std::string_view reason) {
        return invalid_argument(fmt::format("schedule: overlap=1: {}", reason));
    };
    if (plan.sweeps.size() != 2) {
        return refuse(fmt::format("needs a spec with two sweeps over the rows; this one has {}", plan.sweeps.size()));
    }
    if (cpu.cache_elements == 1)
        return refuse("elements are cached for one block of rows only; cache_elements must be 0");
    if (cpu.prefetch == 1 || cpu.prefetch == 2)
        return refuse("the next block is read in any case; prefetch must be 0 or 3");
    return {};
}

/// Refuses schedules that would make the order of a row's sum depend on the batch. A row must be summed as a whole, by
/// a loop that does not depend on whether the next block is full.
Status keeps_rows_alike(const CpuSchedule& cpu) {
    const auto refuse = [](std::string_view field, int64_t value) {
        return invalid_argument(fmt::format("schedule: {}={}: must be 0 with invariant=1", field, value));
    };
    if (cpu.overlap != 0) return refuse("overlap", cpu.overlap);
    return cpu.split_rows != 0 ? refuse("split_rows", cpu.split_rows) : Status();
}

/// Refuses schedules that do not go through the columns group by group, or that share them among threads.
Status takes_groups(const CpuSchedule& cpu) {
    const auto refuse = [](std::string_view field, int64_t value, int needed) {
        return invalid_argument(fmt::format("schedule: {}={}: group_max needs {}", field, value, needed));
    };
    if (cpu.overlap != 0) return refuse("overlap", cpu.overlap, 0);
    if (cpu.split_rows != 0) return refuse("split_rows", cpu.split_rows, 0);
    return cpu.strip != 1 ? refuse("strip", cpu.strip, 1) : Status();
}

}  // namespace

Status check(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    if (plan.spec.invariant) NORMJIT_RETURN_IF_ERROR(keeps_rows_alike(cpu));
    if (plan.spec.group_columns() > 0) NORMJIT_RETURN_IF_ERROR(takes_groups(cpu));
    if (cpu.cache_elements == 1 && cpu.split_rows > 0)
        return invalid_argument("schedule: cache_elements=1: caches whole rows; split_rows must be 0");
    if (const int64_t bytes = cpu.row_block * cached_row_bytes(plan); bytes > most_kept_bytes) {
        return invalid_argument(
            fmt::format("schedule: cache_elements=1: {} rows then take {} bytes of the stack; at most {} are allowed",
                        cpu.row_block, bytes, most_kept_bytes));
    }
    return cpu.overlap == 1 ? may_overlap(plan) : Status();
}

}  // namespace normjit::backend::cpu
