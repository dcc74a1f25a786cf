// SPDX-License-Identifier: Apache-2.0
#include "normjit/schedule.h"

#include <algorithm>

namespace normjit {

namespace {

/// The most vectors per strip or step for which the registers suffice.
int widest_legal(const Spec& spec, Schedule schedule, const Target& target, int CpuSchedule::* field) {
    auto& cpu = std::get<CpuSchedule>(schedule.device);
    while (cpu.*field > 1 && !legality(spec, schedule, target).ok()) --(cpu.*field);
    return cpu.*field;
}

/// Rows whose x and dy fit half of L2 together, so that the last sweep finds them there.
int rows_in_cache(const Spec& spec, const Target& target) {
    const auto row_bytes = static_cast<int64_t>(size_of(DType::f64)) * spec.cols;
    return static_cast<int>(std::clamp<int64_t>(target.l2_bytes / 2 / row_bytes, 1, 16));
}

/// Enough groups for every core to take several, as long as a group keeps 64 rows: then its partials are under 2 % of
/// the traffic even for bf16 and both column sums.
int64_t choose_row_groups(const Spec& spec, const Target& target) {
    if (target.cores == 1) return 1;
    const int64_t wanted = int64_t{4} * target.cores;
    return spec.rows ? std::clamp<int64_t>(*spec.rows / 64, 1, wanted) : wanted;
}

}  // namespace

Schedule heuristic(const Spec& spec, const Target& target) {
    CpuSchedule cpu;
    cpu.row_block = rows_in_cache(spec, target);
    cpu.unroll = 1;
    Schedule schedule{.row_groups = choose_row_groups(spec, target), .device = cpu};
    auto& chosen = std::get<CpuSchedule>(schedule.device);
    chosen.strip = widest_legal(spec, schedule, target, &CpuSchedule::strip);
    chosen.unroll = 4;
    chosen.unroll = widest_legal(spec, schedule, target, &CpuSchedule::unroll);
    chosen.stream_kb = target.l3_bytes / 1024;
    return schedule;
}

}  // namespace normjit
