// SPDX-License-Identifier: Apache-2.0
#include "schedule/cpu_row_blocks.h"

#include "artifact/nontemporal_staging.h"
#include "schedule/cpu_shape.h"
#include "support/divide.h"

#include "normjit/operand.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace normjit::schedule {

namespace {

/// Returns how many rows of x, dy and dx fit L1 together with the partials and gamma, so that the last sweep finds them
/// there. Returns 0 if that gains nothing, because rows need conversion, so that arithmetic is the limit, or because
/// too few rows fit (NOTES N-601).
int64_t rows_in_l1(const Spec& spec, const Target& target) {
    if (!spec.writes_matrices()) return 0;  // there is only one sweep
    const auto math_bytes = static_cast<int64_t>(size_of(spec.compute()));
    int64_t of_row = 0;  // bytes of one column in all matrices
    for (const Operand& operand : OperandList(spec)) {
        if (!operand.is_matrix()) continue;
        if (!operand.is_written() && operand.bytes() < math_bytes) return 0;
        of_row += operand.bytes();
    }
    const int64_t rows = (target.cpu.l1_bytes - column_bytes(spec)) / (of_row * spec.cols);
    const int64_t least = target.isa == Isa::x86_64_avx512 ? 2 : 4;
    return rows < least ? 0 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
}

/// Returns how many rows an eighth of the threads' L2 caches holds.
int64_t rows_in_l2(const Spec& spec, const Target& target, int64_t threads) {
    return threads * target.cpu.l2_bytes / 8 / bytes_read(spec);
}

bool outgrows_caches(const Spec& spec, const Target& target) {
    return spec.rows && bytes_moved(spec, *spec.rows) / 1024 >= outgrown_kb(spec, target);
}

int64_t row_bytes(const Spec& spec) { return spec.cols * static_cast<int64_t>(size_of(type_of_rows(spec))); }

/// True if there are too few cores to saturate the memory, so that stores past the caches gain little (NOTES N-608).
bool has_few_cores(const Target& target) { return target.cpu.cores <= 4; }

/// Returns how many rows per block must fit on the stack for stores past the caches to pay (NOTES N-608).
int64_t least_staged_rows(const Spec& spec, const Target& target) {
    if (target.cpu.tune == Tune::zen4) return converts(spec) ? 4 : 2;
    const bool outgrows_l3 = spec.rows && *spec.rows * bytes_read(spec) > target.cpu.l3_bytes / 4;
    return has_few_cores(target) || !outgrows_l3 ? 2 : 1;
}

/// True if a row takes several cache lines, but not many.
bool is_short(const Spec& spec) {
    constexpr int64_t shortest = 128, too_long = 512;  // bytes
    return row_bytes(spec) >= shortest && row_bytes(spec) < too_long;
}

/// Returns the number of rows per block on a Zen 4 for a backward pass that reads from memory and whose rows are short
/// and fill lines; nothing for other problems (NOTES N-603).
std::optional<int64_t> short_rows_from_memory(const Spec& spec, const Target& target) {
    constexpr int64_t shortest = 192, longer = 256, too_long = 512;  // bytes
    const int64_t row = row_bytes(spec);
    if (spec.pass == Pass::forward || !rows_fill_lines(spec) || row < shortest || row >= too_long) return {};
    if (!spec.rows || bytes_moved(spec, *spec.rows) <= target.cpu.l3_bytes) return {};
    return row < longer ? 8 : 4;
}

/// Returns the number of rows per block on a Zen 4 if it is not the same as on other CPUs: few for short rows from memory
/// and if loads and stores alias, otherwise several for wide rows (NOTES N-603).
std::optional<int64_t> rows_on_zen4(const Spec& spec, const Target& target) {
    constexpr int64_t too_few = 4, most = 8, of_wide = 4;
    const int64_t rows = spec.rows.value_or(INT64_MAX);
    if (target.cpu.tune != Tune::zen4 || rows <= too_few) return {};
    if (const auto block = short_rows_from_memory(spec, target)) return block;
    if (has_4k_aliasing(spec)) return outgrows_caches(spec, target) && rows_in_l1(spec, target) == 0 ? 4 : 2;
    if (of_wide * bytes_read(spec) <= target.cpu.l2_bytes / 8) return {};
    const int64_t of_thread = divide_up(rows, target.cpu.cores);
    const int64_t block = rows <= most ? rows : of_thread;  // if there are few rows, threads share their columns
    return block <= most && of_thread * bytes_read(spec) <= target.cpu.l2_bytes / 4 * 3 ? block : of_wide;
}

/// Returns how many narrow rows a block may have. A Zen 4 takes fewer, unless a row is computed in two vectors (NOTES
/// N-603).
int64_t most_narrow_rows(const Spec& spec, const Target& target) {
    constexpr int64_t two_vectors = 128, four_vectors = 256;  // bytes
    if (target.cpu.tune != Tune::zen4 || computed_bytes(spec) <= two_vectors) return 32;
    return spec.pass == Pass::backward && computed_bytes(spec) >= four_vectors ? 8 : 16;
}

}  // namespace

int64_t outgrown_kb(const Spec& spec, const Target& target) {
    constexpr int64_t share_of_core = 2 << 20;
    const int64_t all_l2 = target.cpu.cores * target.cpu.l2_bytes, all_shares = target.cpu.cores * share_of_core;
    const bool fills_lines = spec.pass == Pass::backward && rows_fill_lines(spec);
    if (target.cpu.tune == Tune::zen4 && fills_lines) return std::min(all_l2 / 1024, most_nontemporal_kb);
    return std::min(std::max(all_l2, std::min(target.cpu.l3_bytes, all_shares)) / 1024, most_nontemporal_kb);
}

bool stores_through_caches(const Spec& spec, const Target& target) {
    constexpr int64_t long_row = 4000;  // bytes
    if (target.cpu.tune != Tune::zen4 || rows_fill_lines(spec)) return false;
    return is_short(spec) || (row_bytes(spec) >= long_row && has_few_cores(target));
}

bool has_few_rows(const Spec& spec) {
    constexpr int64_t least = 32;
    return spec.rows && *spec.rows < least;
}

int usual_row_block(const Spec& spec, const Target& target) {
    constexpr int64_t most = 8, bytes_of_narrow = 8 << 10;
    const int64_t in_l1 = std::min(rows_in_l1(spec, target), most);
    const int64_t rows = spec.rows && *spec.rows >= 1 ? *spec.rows : INT64_MAX;
    if (const auto best = rows_on_zen4(spec, target)) return static_cast<int>(std::min(*best, rows));
    if (in_l1 == 0 && rows <= most) return static_cast<int>(rows);  // all rows fit one block
    const Width width = width_of(spec, target);
    if (width == Width::widest) return converts(spec) ? 4 : 2;
    if (width == Width::wide && converts(spec)) return 2;
    const int64_t in_l2 = std::clamp<int64_t>(rows_in_l2(spec, target, 1), has_few_rows(spec) ? 2 : 1, most);
    const int64_t narrow =
        std::clamp<int64_t>(bytes_of_narrow / computed_bytes(spec), 1, most_narrow_rows(spec, target));
    return static_cast<int>(std::min(std::max(in_l1 > 0 ? in_l1 : in_l2, narrow), rows));
}

int rows_to_overlap(const Spec& spec, const Target& target, int64_t threads) {
    constexpr int64_t most = 4;
    if (threads == 1 && width_of(spec, target) == Width::widest) return most;
    const int64_t least = target.cpu.tune == Tune::zen4 ? 2 : 1;  // NOTES N-603
    return static_cast<int>(std::clamp<int64_t>(rows_in_l2(spec, target, threads), least, most));
}

int rows_to_split(const Spec& spec, const Target& target) {
    constexpr int64_t most = 32;
    const int64_t rows = std::max<int64_t>(spec.rows.value_or(most), 1);
    const int64_t fit = std::clamp<int64_t>(rows_in_l2(spec, target, target.cpu.cores), 1, most);
    const int64_t even = divide_up(rows, divide_up(rows, fit));  // so that the last block is not much smaller
    return std::max(usual_row_block(spec, target), static_cast<int>(even));
}

int fit_staged_rows(const Spec& spec, const Target& target, int usual) {
    const int64_t least = least_staged_rows(spec, target);
    if (rows_fill_lines(spec)) return usual;
    if (spec.rows && !outgrows_caches(spec, target)) return usual;
    if (stores_through_caches(spec, target)) return is_short(spec) ? std::min(usual, 4) : usual;
    const int64_t fit = most_staged_rows(spec);
    return fit < least ? usual : static_cast<int>(std::min<int64_t>(fit, usual));
}

}  // namespace normjit::schedule
