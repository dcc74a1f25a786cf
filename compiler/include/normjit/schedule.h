// SPDX-License-Identifier: Apache-2.0
// The decision: how the work of a Spec is divided on a Target. It only changes the speed and the order of sums.
#pragma once

#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace normjit {

inline constexpr int64_t most_nontemporal_kb = int64_t{1} << 40;

/// How one CPU thread goes through a row group. It takes `row_block` rows at a time, and each sweep passes over all of
/// them before the next sweep starts. The last sweep goes over the columns strip by strip, so that column sums stay in
/// registers.
struct CpuSchedule {
    int row_block = 8;       ///< rows that are swept together, 1..64
    int strip = 4;           ///< vectors per column strip in the last sweep, 1..8
    int unroll = 4;          ///< vectors per step of a row reduction, and so the number of independent sums, 1..8
    int cache_columns = 0;   ///< 1: [N] values are computed once per row group and kept after its partials
    int cache_elements = 0;  ///< 1: values that the last sweep reads again are kept on the stack in the compute type
    int overlap = 0;         ///< 1: one loop does the last sweep of a row block and the first sweep of the next
    int prefetch = 0;        ///< what is prefetched: 0 nothing, the next row block into 1 L2 or 2 L1, 3 the current row
    int column_ranges = 1;   ///< launches of few rows divide every row into this many ranges of columns, 1..1024
    int thread_groups = 1;   ///< the most thread groups of such launches, each of which has all column ranges, 1..1024
    int64_t split_rows = 0;  ///< launches with up to this many rows count as few; 0: every launch is divided into row
                             ///< groups
    int64_t nontemporal_kb = -1;  ///< stores outputs past the caches from this many KiB of x, dy and dx on; -1: never
    bool operator==(const CpuSchedule&) const = default;
};

/// `rows`: one pass over the matrices; a team of threads holds a row. `two_pass`: two passes, for rows of any width.
enum class CudaForm : uint8_t { rows, two_pass };
/// Where rows are kept before use: in registers, or in shared memory, through cp.async or bulk copies (sm_90).
enum class CudaStaging : uint8_t { registers, async, bulk };
/// Where data stays between the sweeps over a row. `global`: each sweep loads it again, from L1 if it is there.
enum class CudaMemory : uint8_t { registers, shared, global };
inline constexpr CudaForm all_cuda_forms[] = {CudaForm::rows, CudaForm::two_pass};
inline constexpr CudaStaging all_cuda_stagings[] = {CudaStaging::registers, CudaStaging::async, CudaStaging::bulk};
inline constexpr CudaMemory all_cuda_memories[] = {CudaMemory::registers, CudaMemory::shared, CudaMemory::global};
std::string_view name(CudaForm form);
std::string_view name(CudaStaging staging);
std::string_view name(CudaMemory memory);

/// How a GPU goes through the rows. One block, or one cluster of blocks, sums a row group. The groups that run at once
/// share all rows, so there are few partials. Without column outputs there may be more groups, each with a few rows. A
/// single row group that takes all rows writes the column outputs itself, without a final reduce.
struct CudaSchedule {
    CudaForm form = CudaForm::rows;
    int threads_per_row = 32;  ///< threads per row in each block: 1, 2, 4, 8, 16 or a multiple of 32. two_pass: threads
                               ///< per block
    int rows_per_block = 1;    ///< teams of threads_per_row threads in a block
    int rows_per_team = 0;     ///< the most rows that a team takes, so more rows need more row groups; 0: row_groups
                               ///< share all rows
    int cluster = 1;           ///< blocks that share a row: 1, 2, 4, 8 or 16 (sm_90)
    int blocks_per_sm = 1;     ///< the number of resident blocks for which registers are limited
    int vector_width = 1;      ///< elements per load, a power of two that divides cols
    int pipeline_depth = 1;    ///< rows in flight, including the current one. two_pass: loads in flight
    CudaStaging staging = CudaStaging::registers;
    CudaMemory row_memory = CudaMemory::registers;     ///< the matrices of the current row
    CudaMemory column_memory = CudaMemory::registers;  ///< the [N] inputs
    int pace = 0;        ///< rows between the progress reports that keep teams together; 0: no reports
    int pace_slack = 1;  ///< how many reports a team may be ahead of the average
    bool operator==(const CudaSchedule&) const = default;
};

/// The largest second dimension of a GPU's grid, in which CudaForm::two_pass counts the row groups.
inline constexpr int64_t most_cuda_row_groups = 65535;

struct Schedule {
    int64_t row_groups = 1;  ///< the most partials, each of which is the sum over some rows
    std::variant<CpuSchedule, CudaSchedule> device;
    bool operator==(const Schedule&) const = default;
};

/// Parses "cpu row_groups=4 row_block=8 prefetch=1" or "cuda row_groups=264 threads_per_row=256 staging=bulk". A
/// missing key has its default. compiler/SPEC.md lists all keys.
Expected<Schedule> parse_schedule(std::string_view text);
std::string to_text(const Schedule& schedule);
/// Returns the text without keys that have their default.
std::string brief_text(const Schedule& schedule);
uint64_t hash(const Schedule& schedule);

/// Checks that the schedule is for the target's kind of device, and that every number is within its range, whatever the
/// spec.
Status check_ranges(const Schedule& schedule, const Target& target);

/// True if both schedules add the elements of a row in the same order, for a spec with `invariant`.
bool sum_rows_alike(const Schedule& a, const Schedule& b);

/// Checks that code can be made for this combination. The error says what prevents it and what is allowed.
Status legality(const Spec& spec, const Schedule& schedule, const Target& target);

/// Checks that a schedule from elsewhere, such as a record, may serve the spec: it must be legal and, with `invariant`,
/// add the elements of a row in the same order as the schedule from heuristic(), which other batches use.
Status usability(const Spec& spec, const Schedule& schedule, const Target& target);

/// Returns a good schedule, chosen without measuring. Deterministic, and legal for every valid spec on a valid target.
/// For specs with `invariant` that differ only in rows, all schedules add the elements of a row in the same order.
Schedule heuristic(const Spec& spec, const Target& target);

/// Adapts a schedule for `spec` to `open`, the same problem with rows or slices that the launch gives. If the number of
/// rows limited the row groups, the result has as many as the device runs at once.
Schedule for_open_rows(const Schedule& schedule, const Spec& spec, const Spec& open, const Target& target);

/// Explains heuristic() to people: returns the measured points, or the properties of the problem, that decided.
std::vector<std::string> heuristic_reasons(const Spec& spec, const Target& target);

}  // namespace normjit
