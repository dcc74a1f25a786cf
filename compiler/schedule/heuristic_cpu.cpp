// SPDX-License-Identifier: Apache-2.0
// Chooses a CPU schedule without measuring. One function chooses each field, from the problem and the fields before it.
// tools/lab/NOTES.md has the measurements that the rules were fitted to.
#include "artifact/nontemporal_staging.h"
#include "schedule/cpu_legality.h"
#include "schedule/cpu_row_blocks.h"
#include "schedule/cpu_shape.h"
#include "schedule/heuristics.h"
#include "support/divide.h"

#include "normjit/geometry.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

/// Returns the spec with all rows in one slice, because CPU schedules do not depend on how slices divide the rows.
Spec in_one_slice(Spec spec) {
    spec.rows = spec.all_rows();
    spec.slices = 1;
    return canonical(spec);
}

/// True if a launch moves at most this many bytes, so that a cache of this size may hold its data.
bool moves_at_most(const Spec& spec, int64_t bytes) { return spec.rows && bytes_moved(spec, *spec.rows) <= bytes; }

int64_t bytes_moved_for_row(const Spec& spec) { return bytes_moved(spec, 2) - bytes_moved(spec, 1); }

bool has_column_sums(const Spec& spec) { return !OperandList(spec).reductions().empty(); }

/// Returns the most units per strip or step for which there are enough registers. It is a power of two, so that strips
/// end where cache lines do.
int widest_legal(Legality& legality, CpuSchedule cpu, int CpuSchedule::* field) {
    while (cpu.*field > 1 && !legality.allows(cpu)) cpu.*field /= 2;
    return cpu.*field;
}

int64_t choose_nontemporal_kb(const Spec& spec, const Target& target) {
    return stores_through_caches(spec, target) ? -1 : outgrown_kb(spec, target);
}

/// Returns how many threads it takes for their L2 caches to hold a row and its column data, if three eighths of each L2
/// are used.
int64_t threads_of_row(const Spec& spec, const Target& target) {
    int64_t threads = 1;
    while ((bytes_read(spec) + column_bytes(spec)) / threads > target.cpu.l2_bytes / 8 * 3) threads *= 2;
    return threads;
}

/// True if overlapping sweeps is faster. Rows from memory gain, because reads for the first sweep of the next block
/// then run along with writes of the last sweep of this block; blocks of one row always do (NOTES N-608). A Zen 4
/// prefetches better without overlap, unless conversion leaves time for it (NOTES N-605).
bool gains_by_overlap(const Spec& spec, const Target& target) {
    if (target.cpu.tune == Tune::zen4 && !(converts(spec) && rows_fill_lines(spec))) return false;
    if (has_few_rows(spec)) return false;
    if (moves_at_most(spec, target.cpu.l2_bytes)) return false;
    const bool stages_single_rows = fit_staged_rows(spec, target, 2) == 1;
    if (stages_single_rows) return true;
    const int64_t part = !converts(spec) ? 16 : target.cpu.tune == Tune::zen4 ? 48 : 64;
    return bytes_read(spec) >= target.cpu.l2_bytes / part;
}

constexpr int64_t narrowest_shared = 4096;  ///< columns that several threads share

/// True for code made by Xbyak, for which cache_elements and overlap were measured.
bool is_x64(const Target& target) {
    return target.isa == Isa::x86_64_avx512 && target.cpu.backend != BackendChoice::llvm;
}

/// Prefers caching the results of functions to overlap, because it gains more (NOTES N-612).
int choose_overlap(const Spec& spec, const Target& target, CpuSchedule cpu, Legality& legality) {
    if (!is_x64(target) || spec.invariant || !gains_by_overlap(spec, target)) return 0;
    cpu.strip = cpu.unroll = 1;
    if (spec.writes_matrices() && spec.cols < narrowest_shared && legality.caches_slow_elements(cpu)) return 0;
    cpu.overlap = 1;
    return legality.allows(cpu) ? 1 : 0;
}

/// Returns the vectors of 64 bytes that a row fills when it is computed.
int64_t full_vectors(const Spec& spec) { return computed_bytes(spec) / 64; }

/// Returns as many independent sums as the latency of an FMA requires. Short rows get fewer, because each sum that is
/// folded costs an addition (NOTES N-606).
int most_unroll(const Spec& spec) {
    const int64_t vectors = full_vectors(spec);
    return vectors >= 32 ? 4 : vectors >= 16 ? 2 : 1;
}

/// Returns the widest strip to try. Wider ones save the loop over the strips of a short row (NOTES N-606).
int most_strip(const Spec& spec, const Target& target) { return is_x64(target) && full_vectors(spec) <= 32 ? 8 : 4; }

bool is_for_one_thread(const Spec& spec, const Target& target) {
    return spec.rows && *spec.rows < Geometry::rows_to_share(spec.cols, target.cpu.cores);
}

/// What CpuSchedule::prefetch fetches.
enum Prefetch { nothing = 0, next_block_into_l2 = 1, next_block_into_l1 = 2, current_row = 3 };

/// Returns the prefetch of a forward pass on CPUs other than a Zen 4 (NOTES N-607).
Prefetch forward_prefetch(const Spec& spec, const Target& target) {
    constexpr int64_t least = 2048;  // bytes
    if (moves_at_most(spec, target.cpu.cores * target.cpu.l2_bytes)) return current_row;
    return bytes_read(spec) < least ? next_block_into_l2 : next_block_into_l1;
}

/// Returns the prefetch of data that may be in L2 (NOTES N-607). Fetching the current row costs little there, and gains
/// if the data is in memory after all.
Prefetch prefetch_of_l2(const Spec& spec, const Target& target, bool one_block, bool threads_share) {
    if (target.cpu.tune == Tune::zen4) return converts(spec) && !one_block ? next_block_into_l2 : nothing;
    return threads_share ? nothing : current_row;
}

/// Returns what to prefetch (NOTES N-607). `shares_rows` is true if the columns of each row are split, among threads or
/// for one thread.
Prefetch choose_prefetch(const Spec& spec, const Target& target, const CpuSchedule& cpu, bool shares_rows) {
    if (cpu.overlap == 1) return current_row;  // overlapped sweeps read the next block in any case
    const bool is_alone = is_for_one_thread(spec, target), threads_share = shares_rows && !is_alone;
    const bool one_block = spec.rows && *spec.rows <= cpu.row_block;
    if (threads_share && one_block) return nothing;
    const bool is_zen4 = target.cpu.tune == Tune::zen4, is_usual = width_of(spec, target) == Width::usual;
    if (spec.pass == Pass::forward && !is_zen4 && is_usual && !shares_rows && !is_alone)
        return forward_prefetch(spec, target);
    if (moves_at_most(spec, target.cpu.l2_bytes)) return prefetch_of_l2(spec, target, one_block, threads_share);
    const bool few_wide = has_few_rows(spec) && bytes_read(spec) > target.cpu.l2_bytes / 16;
    const bool next_fits = shares_rows || is_zen4 || (is_usual && !few_wide);
    return one_block || !next_fits ? current_row : next_block_into_l2;
}

/// Returns the number of row groups if there are too few rows for several groups per core: one for each wide row, or
/// one for four rows otherwise (NOTES N-610).
int64_t groups_of_few_rows(const Spec& spec) {
    constexpr int64_t narrowest_alone = 2048;  // columns
    return spec.cols >= narrowest_alone ? *spec.rows : *spec.rows / 4;
}

/// Returns how many rows a group needs to be worth its cost: the partials of column sums or, without them, handing it out.
int64_t least_rows_of_group(const Spec& spec, const Target& target) {
    if (has_column_sums(spec)) return std::clamp<int64_t>(256 / target.cpu.cores, 16, 64);
    constexpr int64_t least_rows = 2, least_bytes = 24 << 10;
    return std::max(least_rows, divide_up(least_bytes, bytes_moved_for_row(spec)));
}

/// Returns enough groups for every core to take several, and all cores the same number. If that leaves groups too few
/// rows to be worth their cost, returns one group per core. With many cores, the last core starts late, and smaller
/// groups let the others do its work in the meantime. If the number of rows is not known, launches may be small (NOTES
/// N-610).
int64_t choose_row_groups(const Spec& spec, const Target& target) {
    if (target.cpu.cores == 1 || is_for_one_thread(spec, target)) return 1;
    constexpr int64_t usual = 4;  // groups per core
    const int64_t cores = target.cpu.cores;
    if (!spec.rows) return usual * cores;
    const int64_t most = has_column_sums(spec) ? 8 : 16;
    const int64_t of_core = std::clamp<int64_t>(cores / 2, usual, most);
    const int64_t one_a_core = std::clamp<int64_t>(groups_of_few_rows(spec), 1, cores);
    return std::max(one_a_core, std::min(*spec.rows / least_rows_of_group(spec, target) / cores, of_core) * cores);
}

/// Decides whether to cache the [N] values. Caching saves conversions, unless the values are used as they are in
/// memory. It does not pay if the cached values would take room that wide rows need in L2 or, on a Zen 4 with bf16
/// columns, too much of L1. Nor does it pay in a forward pass, which reads the values only once per block of rows
/// (NOTES N-611).
int choose_cache_columns(const Spec& spec, const Target& target) {
    constexpr int64_t min_rows = 64;
    if (spec.pass == Pass::forward) return 0;
    if (width_of(spec, target) != Width::usual) return 0;
    const OperandList operands(spec);
    const bool are_as_computed =
        std::ranges::all_of(operands.columns(), [&](const Operand& c) { return c.dtype == spec.compute(); });
    const bool as_in_memory =
        are_as_computed && type_of_rows(spec) != DType::bf16 && spec.gamma_offset == 0 && spec.source != Source::y;
    const bool are_bf16 =
        std::ranges::all_of(operands.columns(), [](const Operand& c) { return c.dtype == DType::bf16; });
    const int64_t cached_bytes = spec.cols * static_cast<int64_t>(operands.columns().size() * size_of(spec.compute()));
    if (target.cpu.tune == Tune::zen4 && are_bf16 && cached_bytes >= target.cpu.l1_bytes / 2) return 0;
    const bool many = spec.invariant || spec.rows.value_or(min_rows) >= min_rows;
    return !operands.columns().empty() && !as_in_memory && many ? 1 : 0;
}

/// Returns the number of rows, at most `usual`, whose elements are cached on the stack, or 0. Caching gains if the last
/// sweep would otherwise repeat functions or divisions, or if rows that need conversion come from L2 and the stack
/// holds 4 of them (NOTES N-612).
int rows_with_cached_elements(const Spec& spec, const Target& target, CpuSchedule cpu, int usual, Legality& legality) {
    const bool caches_slow =
        spec.writes_matrices() && cpu.split_rows == 0 && cpu.overlap == 0 && legality.caches_slow_elements(cpu);
    const int least_rows = caches_slow ? 1 : 4;
    const bool in_l2 = moves_at_most(spec, target.cpu.l2_bytes);
    if (!caches_slow) {
        if (target.cpu.tune == Tune::zen4 && type_of_rows(spec) == DType::bf16) return 0;
        if (!is_x64(target) || !in_l2 || !spec.writes_matrices() || !converts(spec) || cpu.split_rows > 0) return 0;
    }
    cpu.cache_elements = 1;
    cpu.row_block = usual;
    while (cpu.row_block >= 2 * least_rows && !legality.allows(cpu)) cpu.row_block /= 2;
    return legality.allows(cpu) ? cpu.row_block : 0;
}

/// Returns the number of threads that share each row in thread groups, or 0. Only wide rows are shared, and only by as
/// many threads as they need, because threads wait for each other after every block of rows (NOTES N-613).
int64_t threads_per_group(const Spec& spec, const Target& target, const CpuSchedule& cpu) {
    const int64_t threads = threads_of_row(spec, target);
    const bool is_shared = spec.cols >= narrowest_shared;
    const bool can = cpu.overlap == 1 && spec.rows && is_shared && !is_for_one_thread(spec, target);
    return can && threads > 1 && target.cpu.cores / threads >= 2 ? threads : 0;
}

/// True if a launch of `rows` rows is faster when threads share the columns of each row than when each takes whole rows,
/// judged by the bytes that a thread moves. With whole rows, some threads may have one more than others, and column sums
/// cost partials, which are written and read again. With shared rows, bytes cost more, and threads wait between a block's
/// sweeps; half of the first wait does not count, because whole rows wait for late threads as well (NOTES N-614).
bool gains_by_split(const Spec& spec, const Target& target, int64_t sweeps, int64_t rows) {
    constexpr double moved_while_waiting = 16 << 10;  // bytes, by one of two threads
    const auto cores = static_cast<double>(target.cpu.cores), steps = std::log2(cores);
    const auto row = static_cast<double>(bytes_moved_for_row(spec));
    const auto sums = static_cast<int64_t>(OperandList(spec).reductions().size());
    const auto partials = static_cast<double>(sums * computed_bytes(spec));
    const auto waits = static_cast<double>((sweeps - 1) * divide_up(rows, rows_to_split(spec, target)));
    const double whole = static_cast<double>(divide_up(rows, target.cpu.cores)) * row + 2 * partials;
    const double moved = static_cast<double>(rows) * row / cores * (0.94 + 0.14 * steps);
    return moved + std::max(waits - 0.5, 0.0) * steps * moved_while_waiting < whole;
}

/// Returns the number of rows up to which columns are split. The widest rows are always split, because all L2 caches
/// together hold more of a row than one does. On a single thread, splitting saves the partials (NOTES N-614).
int64_t choose_split_rows(const Spec& spec, const Target& target, int64_t sweeps, int64_t group_threads) {
    if (spec.invariant || spec.group_columns() > 0) return 0;
    constexpr int64_t narrowest_alone = 2048;  // columns for one thread
    if (is_for_one_thread(spec, target)) {
        const bool gains = *spec.rows <= 2 * usual_row_block(spec, target) && spec.cols >= narrowest_alone;
        return gains && has_column_sums(spec) ? *spec.rows : 0;
    }
    if (target.cpu.cores == 1 || spec.cols < narrowest_shared) return 0;
    if (group_threads > 0) return *spec.rows;
    if (width_of(spec, target) == Width::widest) return INT64_MAX;
    if (spec.rows) return gains_by_split(spec, target, sweeps, *spec.rows) ? *spec.rows : 0;
    constexpr int64_t most = 64;
    int64_t rows = 0;
    while (rows < most && gains_by_split(spec, target, sweeps, rows + 1)) ++rows;
    return rows;
}

int choose_row_block(const Spec& spec, const Target& target, CpuSchedule cpu, int64_t group_threads, int cached) {
    if (cached > 0) return cached;
    if (group_threads > 0) return rows_to_overlap(spec, target, group_threads);
    const bool is_split = spec.rows && *spec.rows <= cpu.split_rows;
    cpu.row_block =
        fit_staged_rows(spec, target, is_split ? rows_to_split(spec, target) : usual_row_block(spec, target));
    if (cpu.overlap == 0) return cpu.row_block;
    const int rows = rows_to_overlap(spec, target, 1);
    return may_stage_output(spec, cpu) ? std::min(rows, cpu.row_block) : rows;
}

/// Notes which properties of the problem decided the schedule.
void explain(const Spec& spec, const Target& target, const CpuSchedule& cpu, int64_t group_threads, Reasons reasons) {
    constexpr std::string_view widths[] = {"several rows fit a core's L2", "a row or two fit a core's L2",
                                           "no row fits a core's L2"};
    const auto width = static_cast<size_t>(width_of(spec, target));
    reasons.note([&] {
        return fmt::format(
            "row_block, prefetch, cache_columns: {}: {} KiB to read and {} KiB for columns against {} KiB{}",
            widths[width], bytes_read(spec) >> 10, column_bytes(spec) >> 10, target.cpu.l2_bytes >> 10,
            converts(spec) ? "; rows to convert" : "");
    });
    if (target.cpu.tune == Tune::zen4 && has_4k_aliasing(spec))
        reasons.note(
            [] { return std::string("row_block: a row's loads have 4K aliasing with the stores of the row before"); });
    if (cpu.cache_elements == 1)
        reasons.note(
            [&] { return fmt::format("cache_elements, row_block: elements of {} rows fit the stack", cpu.row_block); });
    if (cpu.overlap == 1) reasons.note([] { return std::string("overlap, row_block: wide rows from memory"); });
    if (group_threads > 0) {
        reasons.note(
            [&] { return fmt::format("thread_groups, row_block: the L2 of {} threads hold a row", group_threads); });
    } else if (cpu.split_rows > 0) {
        reasons.note([&] { return fmt::format("split_rows, column_ranges: few rows of {} columns", spec.cols); });
    }
    if (is_for_one_thread(spec, target))
        reasons.note([] { return std::string("row_groups: less than sharing out costs"); });
}

/// True if threads share few rows, of which all L2 caches hold many. They wait for each other after every block, so large
/// blocks gain more than overlapped sweeps, which take small ones (NOTES N-614).
bool shares_few_rows(const Spec& spec, const Target& target, const CpuSchedule& cpu, int64_t group_threads) {
    const bool is_split = spec.rows && *spec.rows <= cpu.split_rows;
    return is_split && group_threads == 0 && width_of(spec, target) != Width::widest;
}

int choose_thread_groups(const Spec& spec, const Target& target, const CpuSchedule& cpu, int64_t group_threads) {
    if (group_threads == 0) return 1;
    return static_cast<int>(std::min(target.cpu.cores / group_threads, *spec.rows / cpu.row_block));
}

int choose_column_ranges(const Spec& spec, const Target& target, const CpuSchedule& cpu, int64_t group_threads) {
    constexpr int64_t least_elements = 4096;  // about 1 us of work
    if (group_threads > 0) return target.cpu.cores / cpu.thread_groups;
    if (cpu.split_rows == 0) return 1;
    const int64_t ranges_busy = is_for_one_thread(spec, target) ? 1 : int64_t{2} * target.cpu.cores;
    const int64_t most = std::clamp<int64_t>(
        std::min(spec.cols / least_range_columns, cpu.row_block * spec.cols / least_elements), 1, 1024);
    return static_cast<int>(std::min(ranges_busy, most));
}

}  // namespace

Schedule heuristic_cpu(const Spec& given, const Target& target, Reasons reasons) {
    const Spec spec = in_one_slice(given);
    Legality legality(spec, target);
    CpuSchedule cpu;
    cpu.nontemporal_kb = choose_nontemporal_kb(spec, target);
    cpu.cache_columns = choose_cache_columns(spec, target);
    cpu.overlap = choose_overlap(spec, target, cpu, legality);
    const int64_t group_threads = threads_per_group(spec, target, cpu);
    cpu.split_rows = choose_split_rows(spec, target, legality.sweeps(), group_threads);
    const bool shares_rows = shares_few_rows(spec, target, cpu, group_threads);
    if (shares_rows) cpu.overlap = 0;
    cpu.unroll = 1;
    cpu.strip = most_strip(spec, target);
    cpu.strip = widest_legal(legality, cpu, &CpuSchedule::strip);
    cpu.unroll = most_unroll(spec);
    cpu.unroll = widest_legal(legality, cpu, &CpuSchedule::unroll);
    const int cached = rows_with_cached_elements(spec, target, cpu, usual_row_block(spec, target), legality);
    cpu.cache_elements = cached > 0 ? 1 : 0;
    cpu.row_block = choose_row_block(spec, target, cpu, group_threads, cached);
    cpu.prefetch = choose_prefetch(spec, target, cpu, shares_rows);
    cpu.thread_groups = choose_thread_groups(spec, target, cpu, group_threads);
    cpu.column_ranges = choose_column_ranges(spec, target, cpu, group_threads);
    explain(spec, target, cpu, group_threads, reasons);
    return {.row_groups = choose_row_groups(spec, target), .device = cpu};
}

}  // namespace normjit::schedule
