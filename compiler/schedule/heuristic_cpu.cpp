// SPDX-License-Identifier: Apache-2.0
// A CPU schedule without measuring. Each field is chosen by one function, from the problem and the fields before it.
#include "artifact/realign.h"
#include "artifact/sharing.h"
#include "schedule/cpu_legality.h"
#include "schedule/cpu_shape.h"
#include "schedule/heuristics.h"
#include "schedule/store_conflicts.h"
#include "support/divide.h"

#include <algorithm>
#include <bit>
#include <optional>

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

/// The most units per strip or step for which the registers suffice; a power of two, so that strips end where lines do.
int widest_legal(Legality& legality, CpuSchedule cpu, int CpuSchedule::* field) {
    while (cpu.*field > 1 && !legality.allows(cpu)) cpu.*field /= 2;
    return cpu.*field;
}

/// Rows of which L1 holds x, dy and dx beside the columns' partials and gamma: the last sweep then finds them there.
/// 0 where that does not gain: with rows to convert, because arithmetic is their limit, or with too few. Xeon, 48 KiB
/// L1, 1 thread, in L2, 2026-11-21, time over that of 8 rows; from memory it is a few percent less, too:
///   layernorm f32   N = 512: 4 rows 0.92   768: 4 0.94   1024: 2 0.83, 4 1.00   2048: 2 1.08   f64, 512: 2 0.82
///   dx alone        N = 1024: 2 rows 0.72
///   with AVX2       N = 512: 4 rows 0.94   1024: 2 1.08
///   rmsnorm f32     N = 512: 4 rows 0.93   768: 4 0.88   1024: 2 0.85           bf16, 1024: 2 1.02, 4 1.00
int64_t rows_in_l1(const Spec& spec, const Target& target) {
    if (!spec.writes_matrices()) return 0;  // one sweep
    const auto math_bytes = static_cast<int64_t>(size_of(spec.compute()));
    int64_t of_row = 0;  // bytes of an element of each matrix
    for (const Operand& operand : OperandList(spec)) {
        if (!operand.is_matrix()) continue;
        if (!operand.is_written() && operand.bytes() < math_bytes) return 0;
        of_row += operand.bytes();
    }
    const int64_t rows = (target.l1_bytes - column_bytes(spec)) / (of_row * spec.cols);
    const int64_t least = target.isa == Isa::x86_64_avx512 ? 2 : 4;
    return rows < least ? 0 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
}

/// Past the caches from the size on where x, dy and dx outgrow L2 and a fair share of L3, which other programs use too.
/// On the same Xeon (260 MiB L3 reported, 1 of 2 cores) f32 rows of 1024 gained 1.2x at 6 MiB, 1.3x at 48 MiB, 1.5x at
/// 192 MiB. On 16 cores (32 MiB of L2, 300 MiB of L3) with data in no cache, problems of 36 to 60 MiB gained 1.13x to
/// 1.29x (8192 rows of 768 to 1280 bf16, 4096 of 768 f32), and lost 0 to 12 % where all of it was in L3 (2026-11-21).
int64_t choose_nontemporal_kb(const Target& target) {
    constexpr int64_t share_of_core = 2 << 20;
    const int64_t all_l2 = target.cores * target.l2_bytes, all_shares = target.cores * share_of_core;
    return std::min(std::max(all_l2, std::min(target.l3_bytes, all_shares)) / 1024, most_nontemporal_kb);
}

bool goes_past_caches(const Spec& spec, const Target& target) {
    return spec.rows && bytes_moved(spec, *spec.rows) / 1024 >= choose_nontemporal_kb(target);
}

/// On a Zen 4: few rows where they meet stores, else many, as wide as they are. EPYC, 1 thread, 2026-11-23. Times as
/// fast as 8 rows, in caches:
///   layernorm f32   1000: 2 rows 1.0   1016, 1024, 1040: 2 1.36   2048: 2 1.1   4096: 2 1.2   8x4096: 2 1.27
///   layernorm bf16  2000, 2080, 3072: 2 rows 0.95   2048, 4096, 8192: 2 1.24   8x4096: 2 1.12   4x4096: 2 0.93
/// Times as fast as 2 rows:
///   from memory     8192: 4 rows 1.07  16384: 4 1.04   4096: 4 1.07   rmsnorm 7000: 4 1.05, 8 1.13
///   layernorm f32   5000: 8 rows 1.05 (in L3 1.19)   7000: 8 1.11   12000: 8 1.13 (in L3 1.05)   50000: 8 1.03
std::optional<int64_t> rows_on_zen4(const Spec& spec, const Target& target) {
    constexpr int64_t too_few = 4;
    if (target.tune != Tune::zen4 || spec.rows.value_or(INT64_MAX) <= too_few) return {};
    if (loads_meet_stores(spec)) return goes_past_caches(spec, target) && rows_in_l1(spec, target) == 0 ? 4 : 2;
    if (width_of(spec, target) != Width::usual) return converts(spec) ? 4 : 8;
    return {};
}

/// Too few to gain by sweeps in one loop.
bool has_few_rows(const Spec& spec) {
    constexpr int64_t least = 32;
    return spec.rows && *spec.rows < least;
}

/// Rows swept together. Xeon, 2 MiB L2 a core, 2026-11-21, share of the ceiling with 16 threads / 1 thread:
///   layernorm f32   N = 16: 8 rows - / 0.68, 32 rows - / 0.79   48: 8 0.97 / 0.75, 32 0.99 / 0.82
///                   4096: 8 rows 0.90 / 0.89, 2 rows 0.94 / 0.85   16384: 8 0.57 / 0.61, 2 0.90 / 0.77
///                   65536: 2 rows 0.47 / 0.51, 1 row 0.70 / 0.62
///   layernorm bf16  1024: 8 rows 0.90 / 0.85, 2 rows 0.72 / 0.87   16384: 8 0.78 / 0.66, 4 0.82 / 0.73
/// Wide rows of 16 bits weigh half of their columns' partials, which several of them share. Time over that of 1 row
/// with fetches of the next one and gamma kept, 2026-11-22, 16 threads / 1 thread / 1 thread of another such machine:
///   layernorm bf16  49152: 2 rows - / - / 0.92   65536: 1 row 0.62 / 1.04 / 0.96, 2 rows 0.64 / 0.96 / 0.87
///                   131072: 1 row - / - / 0.86, 2 rows - / - / 0.76   f16, 65536: 1 row 0.88, 2 rows 0.82
///   rmsnorm bf16    65536: 1 row - / - / 0.86, 2 rows 0.93   131072: 0.89, 0.89
/// Narrow ones on a Zen 4, times as fast as 32 or what fits 8 KiB (EPYC, 1 thread, in caches / from memory,
/// 2026-11-23):
///   16 rows         f32 16: 0.93 / 0.99   48: 1.03 / 1.02   100: 1.08 / 1.03   bf16 32: 0.96 / 0.98   64: - / 1.25
///                   rmsnorm bf16 77: - / 1.18   bf16 120: 1.05
/// Few wide ones, 2 rows and fetches of these over 1 row and fetches of the next, 2 threads / 1 thread, from memory,
/// 2026-11-24:
///   layernorm f32   20x16500: 0.73   28x20000: 0.93   20x33000: - / 0.87   20x65536: 0.68   bf16 12x33272: 0.86
///   rmsnorm f32     20x33000: 0.94 / 0.89   12x65536: 0.97   bf16 20x49152: 0.87   layernorm f16 24x33000: 0.81
/// The widest, split among the cores, over a row group of 1 row (bf16: 2) at a time:
///   layernorm f32   131072: 2 rows 0.68 / - / 0.92, 4 rows 0.77 / - / 0.89   bf16, 262144: 2 rows 0.97, 4 rows 0.85
int usual_row_block(const Spec& spec, const Target& target) {
    constexpr int64_t most = 8, bytes_of_narrow = 8 << 10, bytes_of_narrowest = 128;
    const int64_t in_l1 = std::min(rows_in_l1(spec, target), most);
    const int64_t rows = spec.rows && *spec.rows >= 1 ? *spec.rows : INT64_MAX;
    if (const auto best = rows_on_zen4(spec, target)) return static_cast<int>(std::min(*best, rows));
    if (in_l1 == 0 && rows <= most) return static_cast<int>(rows);  // one block
    const Width width = width_of(spec, target);
    if (width == Width::widest) return converts(spec) ? 4 : 2;
    if (width == Width::wide && converts(spec)) return 2;
    const int64_t in_l2 = std::clamp<int64_t>(target.l2_bytes / 8 / bytes_read(spec), has_few_rows(spec) ? 2 : 1, most);
    const int64_t computed_bytes = spec.cols * static_cast<int64_t>(size_of(spec.compute()));
    const bool takes_fewer = target.tune == Tune::zen4 && computed_bytes > bytes_of_narrowest;
    const int64_t narrow = std::clamp<int64_t>(bytes_of_narrow / computed_bytes, 1, takes_fewer ? 16 : 32);
    return static_cast<int>(std::min(std::max(in_l1 > 0 ? in_l1 : in_l2, narrow), rows));
}

/// Threads whose L2 have room for a row and what goes with it for every column, three eighths of each.
int64_t threads_of_row(const Spec& spec, const Target& target) {
    int64_t threads = 1;
    while ((bytes_read(spec) + column_bytes(spec)) / threads > target.l2_bytes / 8 * 3) threads *= 2;
    return threads;
}

/// Rows of a block for sweeps in one loop, which `threads` share: all L2 hold one such block and its columns. What does
/// not fit anyway saves most with most rows.
int rows_to_overlap(const Spec& spec, const Target& target, int64_t threads) {
    constexpr int64_t most = 4;
    if (threads == 1 && width_of(spec, target) == Width::widest) return most;
    const int64_t least = target.tune == Tune::zen4 ? 2 : 1;  // 65536 bf16, an EPYC: 2 rows 1.18 times as fast as 1
    return static_cast<int>(std::clamp<int64_t>(threads * target.l2_bytes / 8 / bytes_read(spec), least, most));
}

/// The next block's first sweep reads from memory while the last one of this block reads from L2 and writes, so that
/// memory always has both to do; the partials are the loop's further cost. For rows from memory. Time over that
/// without, 1 thread, the same Xeon and another such machine with 16 cores, 2026-11-22:
///   layernorm f32   4096: 0.94 to 1.04   8192: 0.98   16384: 0.90, 0.88   65536: 0.93, 0.93   131072: 0.84
///   rmsnorm f32     2048: 1.08           4096: 1.07   layernorm 1024, 16 threads: 1.23
///   layernorm bf16  4096: 1.14           8192: 0.92   16384: 0.86, 0.85   65536: 0.82, 0.74   131072: 0.84
///   rmsnorm bf16    8192: 0.77           layernorm f16, 16384: 0.87
/// A Zen 4 fetches ahead better when it reads and writes one after the other, where arithmetic leaves it time for that.
/// EPYC, 1 thread, 2026-11-23, times as fast without:
///   f32             8192: 1.31   16384: 1.34   65536: 1.43   rmsnorm 16384: 1.38
///   bf16            4096: 1.06   rmsnorm 8192, 16384: 0.98, 0.97   layernorm 8192: 0.93   16384: 0.92
///   on 2 threads    layernorm 4096: 1.11, f16 1.27   5120: 0.99   6144: 0.88   8192: 0.84   16384: 0.83
///                   rmsnorm 4096: 1.19 (1 thread 1.35)   8192: 1.01   12288, 16384: 0.98          (2026-11-24)
///   unfilled lines  4097: 1.22   4925: 1.21 (in L3 1.25)   6910: 1.05 (1.25)   40001: 1.19   f16 12345: 1.05
bool gains_by_overlap(const Spec& spec, const Target& target) {
    if (target.tune == Tune::zen4 && !(converts(spec) && rows_fill_lines(spec))) return false;
    if (has_few_rows(spec)) return false;  // 16x1048576 f32, 16 threads: 1.09 to 1.15
    if (spec.rows && bytes_moved(spec, *spec.rows) <= target.l2_bytes) return false;
    const int64_t part = !converts(spec) ? 16 : target.tune == Tune::zen4 ? 48 : 64;
    return bytes_read(spec) >= target.l2_bytes / part;
}

/// What the measurements of keep and overlap are of: Xbyak's code.
bool is_x64(const Target& target) { return target.isa == Isa::x86_64_avx512 && target.backend != BackendChoice::llvm; }

int choose_overlap(const Spec& spec, const Target& target, CpuSchedule cpu, Legality& legality) {
    if (!is_x64(target) || spec.invariant || !gains_by_overlap(spec, target)) return 0;
    cpu.overlap = cpu.strip = cpu.unroll = 1;
    return legality.allows(cpu) ? 1 : 0;
}

/// As many independent sums as an FMA's latency asks for, fewer for short rows: folding them costs an addition each
/// (N = 64, bf16, 1 thread: share 0.63 with 4, 0.68 with 1).
int most_unroll(const Spec& spec) {
    const int64_t vectors = spec.cols * static_cast<int64_t>(size_of(spec.compute())) / 64;
    return vectors >= 32 ? 4 : vectors >= 16 ? 2 : 1;
}

/// From memory 1.1x to 1.3x. In L2 the fetches cost more than they bring: layernorm f32 512x256 0.62 of the ceiling
/// with them, 0.69 without (same machine). Wide rows have no room for the next one, and a single block has no next:
/// those fetch the row in hand (512x65536 f32, 16 threads / 1 thread: next block 0.74 / 0.63, row in hand 0.85 / 0.67;
/// 2048x16384 the other way round: 0.86 / 0.82, 0.82 / 0.65). On a Zen 4 the next block is never worse.
int choose_prefetch(const Spec& spec, const Target& target, const CpuSchedule& cpu) {
    if (cpu.overlap == 1) return 3;  // which reads the next block anyway
    if (spec.rows && bytes_moved(spec, *spec.rows) <= target.l2_bytes) return 0;
    const bool one_block = spec.rows && *spec.rows <= cpu.row_block;
    const bool few_wide = has_few_rows(spec) && bytes_read(spec) > target.l2_bytes / 16;
    const bool fits = target.tune == Tune::zen4 || (width_of(spec, target) == Width::usual && !few_wide);
    return one_block || !fits ? 3 : 1;
}

/// Fewer rows where their dx goes past the caches, does not fill lines, and then fits the stack. Same machine, 1
/// thread, over more rows with normal stores: layernorm f32 4096x4097 2 rows 1.39, 16384x2001 4 rows 1.43, bf16
/// 8192x4097 4 rows 1.10. On a Zen 4, 2 rows of 2 bytes over 4 with normal stores: 4925 0.84, 6910 0.89, in L3 0.76.
int fit_realigned_rows(const Spec& spec, const Target& target, int usual) {
    const int64_t least = target.tune == Tune::zen4 && converts(spec) ? 4 : 2;
    if (rows_fill_lines(spec)) return usual;
    if (spec.rows && !goes_past_caches(spec, target)) return usual;
    const int64_t fit = rows_that_fit(spec);
    return fit < least ? usual : static_cast<int>(std::min<int64_t>(fit, usual));
}

constexpr int64_t narrowest_shared = 4096;  ///< columns that several threads share

/// Columns of a range, whose row sums are added up by themselves: 16384 for each element of four vectors of sums. In
/// f32 those of a longer one stop growing: x of mean 100.5, one row on two cores with AVX-512: dx is off by 4e-4 for
/// 2^24 columns in four ranges, 0.5 for 2^26; in these 3e-5 to 1.1e-4, 1.4e-4.
int64_t widest_range(const Target& target) { return int64_t{16384} * target.vector_bytes(); }

bool is_for_one_thread(const Spec& spec, const Target& target) {
    return spec.rows && !pays_to_share(*spec.rows, spec.cols, target.cores);
}

/// Of rows that are too few for several groups a core. Wide rows are worth a group each (17x65536 on 16 threads of the
/// same Xeon: 183 us, 331 us in 4), or two of them (28x20480 bf16 from memory: 54 us in 16 groups, 95 us in 7). Ten
/// groups instead of a group per four rows (2026-11-23): 17x4096 f32 1.7 times as fast from memory, 1.15 from L2, bf16
/// 1.2, 0.92; 17x8192 1.6, 1.6, 1.7, 1.0; 22x8192 f32 1.5, 1.0; 28x8192 1.2, 1.0, 1.1, 1.0; 28x2048 1.1, 0.9, 1.1, 0.9.
int64_t groups_of_few_rows(const Spec& spec, const Target& target) {
    const int64_t rows = *spec.rows;
    if (width_of(spec, target) != Width::usual) return rows;
    if (spec.cols >= 16384) return rows / 2;
    return spec.cols >= 4096 ? std::max(rows / 4, std::min<int64_t>(rows, 10)) : rows / 4;
}

/// Enough groups for every core to take several, and as many as the others, as long as a group keeps 64 rows: then its
/// partials are under 2 % of the traffic even for bf16 and both column sums. With less, one a core: 128x4096 on 16
/// threads of the same Xeon takes 26 us in 16 groups, 86 us with its columns split.
int64_t choose_row_groups(const Spec& spec, const Target& target) {
    if (target.cores == 1 || is_for_one_thread(spec, target)) return 1;
    const int64_t wanted = int64_t{4} * target.cores;
    if (!spec.rows) return wanted;
    const int64_t for_each_core = std::min(*spec.rows / 64, wanted) / target.cores;
    const int64_t one_a_core = std::clamp<int64_t>(groups_of_few_rows(spec, target), 1, target.cores);
    return std::max(one_a_core, for_each_core * target.cores);
}

/// Keeping the columns costs a row group about a third of a row, and saves bf16 rows 7 % of the arithmetic (same
/// machine: layernorm 4096x4096, bf16 with f32 gamma, 58 % of the ceiling without, 65 % with). Wide rows need the room
/// in L2: 65536 bf16 takes 1.09x with gamma kept, 131072 1.10x, with f32 gamma 1.01x and 1.03x (1 thread). A forward
/// reads them in its last sweep alone, once for a block of rows.
int choose_stage(const Spec& spec, const Target& target) {
    constexpr int64_t min_rows = 64;
    if (spec.pass == Pass::forward) return 0;
    if (width_of(spec, target) != Width::usual) return 0;
    const OperandList operands(spec);
    const bool are_as_computed =
        std::ranges::all_of(operands.columns(), [&](const Operand& c) { return c.dtype == spec.compute(); });
    const bool as_in_memory =
        are_as_computed && type_of_rows(spec) != DType::bf16 && spec.gamma_offset == 0 && spec.source != Source::y;
    const bool many = spec.invariant || spec.rows.value_or(min_rows) >= min_rows;
    return !operands.columns().empty() && !as_in_memory && many ? 1 : 0;
}

/// Rows to convert are converted once where they come from L2 and the stack holds 4 of them: as many of `usual` as it
/// holds, or 0. Same machine, 1 thread, time over that without: layernorm 1024x64 bf16 0.87, 512x256 0.86, f16 0.76,
/// 256x512 bf16 0.89, f16 0.79; rmsnorm 512x256 bf16 0.93, f16 0.78. Of 1024 columns 2 rows fit: bf16 1.07, f16 0.94.
/// From L3 2048x256 bf16 takes 1.0 to 1.1. A Zen 4 takes two cycles for each store of 64 bytes: layernorm bf16 128 to
/// 512 columns, 1 thread, 2026-11-23: 1.10 to 1.20, f16 0.89.
int rows_to_keep(const Spec& spec, const Target& target, CpuSchedule cpu, int usual, Legality& legality) {
    constexpr int least_rows = 4;
    const bool in_l2 = spec.rows && bytes_moved(spec, *spec.rows) <= target.l2_bytes;
    if (target.tune == Tune::zen4 && type_of_rows(spec) == DType::bf16) return 0;
    if (!is_x64(target) || !in_l2 || !spec.writes_matrices() || !converts(spec) || cpu.split_rows > 0) return 0;
    cpu.cache_elements = 1;
    cpu.row_block = usual;
    while (cpu.row_block >= 2 * least_rows && !legality.allows(cpu)) cpu.row_block /= 2;
    return legality.allows(cpu) ? cpu.row_block : 0;
}

/// Threads that share each row in teams, or 0. Wide rows, and no more threads for each than it needs: these wait for
/// each other after every block of rows, and each team's partials are summed afterwards. 16 threads, 2026-11-22, in
/// teams of 2, 4, 8, 16 threads, time over row groups:
///   layernorm f32   512x65536: 1 row 0.78, 0.77, -, -     2 rows 0.91, 0.82, 0.84, -   4 rows -, 0.98, 1.02, 0.91
///                   256x131072: 1 row -, 0.76, -, -       2 rows -, 0.96, 0.78, -      4 rows -, -, 1.04, 0.88
///   layernorm bf16  512x65536: 2 rows 0.90, 0.92, -, -    4 rows -, 0.94, 0.95, -
///                   256x131072: 2 rows -, 0.69, -, -      4 rows -, 0.88, 0.79, 0.89
/// 131072: over one team of all.
int64_t threads_of_team(const Spec& spec, const Target& target, const CpuSchedule& cpu) {
    const int64_t threads = threads_of_row(spec, target);
    const bool is_shared = spec.cols >= narrowest_shared && spec.cols <= widest_range(target);
    const bool can = cpu.overlap == 1 && spec.rows && is_shared && !is_for_one_thread(spec, target);
    return can && threads > 1 && target.cores / threads >= 2 ? threads : 0;
}

/// Launches of few rows, which row groups would leave on few cores. The widest rows are always split: the cores' L2
/// hold more of them than one (64x1048576 f32, 16 threads: share 0.39, in row groups 0.24; 1024x65536 takes 0.93 to
/// 1.31 times as long). What one thread does is one part: its column sums are done with the last row, where a row
/// group's partials are summed afterwards. One thread, 2026-11-21, this way over a row group: 1x8192 bf16 1.4, f32 1.4;
/// 2x4096 1.15, 1.22; 8x2048 1.06, 1.11; 1x1024 0.95, 1.04; 4x1024 0.97, 0.80. LLVM's code for AVX2: 1x8192 bf16 1.2.
int64_t choose_split_rows(const Spec& spec, const Target& target, int64_t team) {
    if (spec.invariant) return 0;
    if (spec.cols > widest_range(target)) return INT64_MAX;
    constexpr int64_t narrowest_alone = 2048;  // columns on one thread
    constexpr int64_t most_alone = 32 << 10;   // and elements
    if (is_for_one_thread(spec, target)) {
        const bool few_elements = *spec.rows * spec.cols < most_alone;
        return few_elements && spec.cols >= narrowest_alone ? *spec.rows : 0;
    }
    if (target.cores == 1 || spec.cols < narrowest_shared) return 0;
    if (team > 0) return *spec.rows;
    const int64_t few = width_of(spec, target) == Width::widest ? INT64_MAX : std::clamp(target.cores, 8, 16);
    return spec.rows && *spec.rows > few ? 0 : few;
}

int choose_row_block(const Spec& spec, const Target& target, CpuSchedule cpu, int64_t team, int kept) {
    if (kept > 0) return kept;
    if (team > 0) return rows_to_overlap(spec, target, team);
    cpu.row_block = fit_realigned_rows(spec, target, usual_row_block(spec, target));
    if (cpu.overlap == 0) return cpu.row_block;
    const int rows = rows_to_overlap(spec, target, 1);
    return may_realign(spec, cpu) ? std::min(rows, cpu.row_block) : rows;
}

/// What the problem is to the functions above.
void explain(const Spec& spec, const Target& target, const CpuSchedule& cpu, int64_t team, Reasons reasons) {
    constexpr std::string_view widths[] = {"several rows fit a core's L2", "a row or two fit a core's L2",
                                           "no row fits a core's L2"};
    const auto width = static_cast<size_t>(width_of(spec, target));
    reasons.note([&] {
        return fmt::format(
            "row_block, prefetch, cache_columns: {}: {} KiB to read and {} KiB for columns against {} KiB{}",
            widths[width], bytes_read(spec) >> 10, column_bytes(spec) >> 10, target.l2_bytes >> 10,
            converts(spec) ? "; rows to convert" : "");
    });
    if (target.tune == Tune::zen4 && loads_meet_stores(spec))
        reasons.note([] { return std::string("row_block: a row's loads meet the stores of the row before"); });
    if (cpu.cache_elements == 1)
        reasons.note(
            [&] { return fmt::format("cache_elements, row_block: {} converted rows fit the stack", cpu.row_block); });
    if (cpu.overlap == 1) reasons.note([] { return std::string("overlap, row_block: wide rows from memory"); });
    if (team > 0) {
        reasons.note([&] { return fmt::format("thread_groups, row_block: the L2 of {} threads hold a row", team); });
    } else if (cpu.split_rows > 0) {
        reasons.note([&] { return fmt::format("split_rows, column_ranges: few rows of {} columns", spec.cols); });
    }
    if (is_for_one_thread(spec, target))
        reasons.note([] { return std::string("row_groups: less than sharing out costs"); });
}

int choose_teams(const Spec& spec, const Target& target, const CpuSchedule& cpu, int64_t team) {
    if (team == 0) return 1;
    return static_cast<int>(std::min(target.cores / team, *spec.rows / cpu.row_block));
}

int choose_column_parts(const Spec& spec, const Target& target, const CpuSchedule& cpu, int64_t team) {
    constexpr int64_t part_least = 512;   // columns
    constexpr int64_t task_least = 4096;  // elements, about 1 us of work
    if (team > 0) return target.cores / cpu.thread_groups;
    if (cpu.split_rows == 0) return 1;
    const int64_t ranges_exact = divide_up(spec.cols, widest_range(target));
    const int64_t ranges_busy = is_for_one_thread(spec, target) ? 1 : int64_t{2} * target.cores;
    const int64_t most =
        std::clamp<int64_t>(std::min(spec.cols / part_least, cpu.row_block * spec.cols / task_least), 1, 1024);
    return static_cast<int>(std::min(std::max(ranges_busy, ranges_exact), most));
}

}  // namespace

Schedule heuristic_cpu(const Spec& given, const Target& target, Reasons reasons) {
    const Spec spec = in_one_slice(given);
    Legality legality(spec, target);
    CpuSchedule cpu;
    cpu.nontemporal_kb = choose_nontemporal_kb(target);
    cpu.cache_columns = choose_stage(spec, target);
    cpu.overlap = choose_overlap(spec, target, cpu, legality);
    const int64_t team = threads_of_team(spec, target, cpu);
    cpu.split_rows = choose_split_rows(spec, target, team);
    cpu.unroll = 1;
    cpu.strip = widest_legal(legality, cpu, &CpuSchedule::strip);
    cpu.unroll = most_unroll(spec);
    cpu.unroll = widest_legal(legality, cpu, &CpuSchedule::unroll);
    const int kept = rows_to_keep(spec, target, cpu, usual_row_block(spec, target), legality);
    cpu.cache_elements = kept > 0 ? 1 : 0;
    cpu.row_block = choose_row_block(spec, target, cpu, team, kept);
    cpu.prefetch = choose_prefetch(spec, target, cpu);
    cpu.thread_groups = choose_teams(spec, target, cpu, team);
    cpu.column_ranges = choose_column_parts(spec, target, cpu, team);
    explain(spec, target, cpu, team, reasons);
    return {.row_groups = choose_row_groups(spec, target), .device = cpu};
}

}  // namespace normjit::schedule
