// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_rules.h"

#include "normjit/schedule.h"

#include <algorithm>

namespace normjit {

namespace {

/// The most units per strip or step for which the registers suffice; a power of two, so that strips end where lines do.
int widest_legal(const Spec& spec, Schedule schedule, const Target& target, int CpuSchedule::* field) {
    auto& cpu = std::get<CpuSchedule>(schedule.device);
    while (cpu.*field > 1 && !legality(spec, schedule, target).ok()) cpu.*field /= 2;
    return cpu.*field;
}

/// Of the matrices, for one row.
int64_t bytes_read(const Spec& spec) {
    int64_t element_bytes = 0;
    for (const Tensor tensor : all_tensors) {
        if (is_matrix(tensor) && !is_output(tensor) && spec.reads(tensor))
            element_bytes += static_cast<int64_t>(size_of(*spec.dtypes[tensor]));
    }
    return std::max<int64_t>(element_bytes * spec.cols, 1);
}

/// Rows of which one core's L2 holds few.
bool is_wide(const Spec& spec, const Target& target) {
    return target.cores > 1 && bytes_read(spec) > target.l2_bytes / 8;
}

/// Rows whose x and dy fill a quarter of L2: the last sweep finds them there while the next block's arrive. Beyond 8
/// nothing is gained (Xeon, 3.4 GHz, 2 MiB L2, 2026-11-21: bf16 4096x4096 on 1 thread 23.6 GB/s at 8 rows, 22.9 at
/// 16, 19.8 at 32).
int rows_in_cache(const Spec& spec, const Target& target) {
    const int64_t cores = is_wide(spec, target) ? target.cores : 1;
    return static_cast<int>(std::clamp<int64_t>(cores * (target.l2_bytes / 4) / bytes_read(spec), 1, 8));
}

/// Past the caches from the size on where x, dy and dx outgrow L2 and a fair share of L3, which other programs use too.
/// On the same Xeon (260 MiB L3 reported, 1 of 2 cores) f32 rows of 1024 gained 1.2x at 6 MiB, 1.3x at 48 MiB, 1.5x at
/// 192 MiB.
int64_t choose_stream_kb(const Target& target) {
    constexpr int64_t share_of_core = 4 << 20;
    return std::max(target.cores * target.l2_bytes, std::min(target.l3_bytes, target.cores * share_of_core)) / 1024;
}

/// Enough groups for every core to take several, as long as a group keeps 64 rows: then its partials are under 2 % of
/// the traffic even for bf16 and both column sums.
int64_t choose_row_groups(const Spec& spec, const Target& target) {
    if (target.cores == 1) return 1;
    const int64_t wanted = int64_t{4} * target.cores;
    if (!spec.rows) return wanted;
    return std::clamp(*spec.rows / 64, std::clamp<int64_t>(*spec.rows / 8, 1, target.cores), wanted);
}

/// Keeping the columns costs a row group about a third of a row, and saves bf16 rows 7 % of the arithmetic (same
/// machine: layernorm 4096x4096, bf16 with f32 gamma, 58 % of the ceiling without, 65 % with).
int choose_stage(const Spec& spec) {
    constexpr int64_t min_rows = 64;
    const bool as_in_memory = spec.dtypes[Tensor::gamma] == spec.compute() && spec.dtypes[Tensor::x] != DType::bf16 &&
                              spec.gamma_offset == 0 && spec.source != Source::y;
    return spec.has(Tensor::gamma) && !as_in_memory && spec.rows.value_or(min_rows) >= min_rows ? 1 : 0;
}

}  // namespace

namespace {

/// Launches of few rows. In row groups they would keep few cores busy, or write as much in partials as in dx: a group
/// of 8 rows adds a sixth to the traffic of f32. Rows so wide that few fit into L2 are always split, then a core keeps
/// its part of several rows there, and its partials.
void split_few_rows(const Spec& spec, const Target& target, CpuSchedule& cpu) {
    constexpr int64_t part_least = 512, task_least = 4096;  // columns; elements, about 1 us of work
    constexpr int64_t few_elements = 32 << 10;              // what one thread does without asking others
    constexpr int64_t narrow = 4096;
    const int64_t block = cpu.row_block * spec.cols;
    if (target.cores == 1 || spec.cols < narrow) return;
    if (spec.rows && *spec.rows * spec.cols < few_elements) return;
    const int64_t most = std::min(spec.cols / part_least, block / task_least);
    cpu.column_parts = static_cast<int>(std::clamp<int64_t>(2 * target.cores, 1, std::clamp<int64_t>(most, 1, 1024)));
    cpu.split_rows = is_wide(spec, target) ? INT64_MAX : int64_t{8} * target.cores;
}

}  // namespace

Schedule heuristic(const Spec& spec, const Target& target) {
    if (target.isa == Isa::cuda) return schedule::heuristic_cuda(spec, target);
    CpuSchedule cpu;
    cpu.row_block = rows_in_cache(spec, target);
    cpu.stage = choose_stage(spec);
    cpu.prefetch = 1;  // 1.1x to 1.3x for rows from memory, nothing lost in cache; same machine
    cpu.unroll = 1;
    split_few_rows(spec, target, cpu);
    Schedule schedule{.row_groups = choose_row_groups(spec, target), .device = cpu};
    auto& chosen = std::get<CpuSchedule>(schedule.device);
    chosen.strip = widest_legal(spec, schedule, target, &CpuSchedule::strip);
    chosen.unroll = 4;
    chosen.unroll = widest_legal(spec, schedule, target, &CpuSchedule::unroll);
    chosen.stream_kb = choose_stream_kb(target);
    return schedule;
}

}  // namespace normjit
