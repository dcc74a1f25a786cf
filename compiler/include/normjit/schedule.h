// SPDX-License-Identifier: Apache-2.0
// The decision: how the work of a Spec is cut on a Target. Changes speed and the order of sums, never the formula.
#pragma once

#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace normjit {

/// How one CPU thread walks a row group. Rows are taken `row_block` at a time: each sweep passes over all of them
/// before the next sweep starts, and the last sweep walks strips of columns, so that column sums stay in registers.
struct CpuSchedule {
    int row_block = 8;       ///< rows swept together, 1..64
    int strip = 4;           ///< vectors per column strip in the last sweep, 1..8
    int unroll = 4;          ///< vectors per step of a row reduction, 1..8: that many independent sums
    int stage = 0;           ///< 1: [N] values are computed once per row group and kept beside the partials
    int prefetch = 0;        ///< row blocks fetched ahead into cache while one is finished: 0 or 1
    int64_t stream_kb = -1;  ///< from this many KiB of x, dy and dx on, dx goes past the caches; -1: never
    bool operator==(const CpuSchedule&) const = default;
};

struct Schedule {
    int64_t row_groups = 1;  ///< partials, each the sum of one contiguous range of rows. At most this many
    std::variant<CpuSchedule> device;
    bool operator==(const Schedule&) const = default;
};

/// Reads "cpu row_groups=4 row_block=8 strip=4 unroll=4 prefetch=0 stream_kb=-1". Parts left out take their defaults.
Expected<Schedule> parse_schedule(std::string_view text);
std::string to_text(const Schedule& schedule);
uint64_t hash(const Schedule& schedule);

/// Whether code for this combination can be made; the error says what stands in the way and what is allowed.
Status legality(const Spec& spec, const Schedule& schedule, const Target& target);

/// A good schedule chosen without measuring. Deterministic; legal for every valid spec on a supported target.
Schedule heuristic(const Spec& spec, const Target& target);

}  // namespace normjit
