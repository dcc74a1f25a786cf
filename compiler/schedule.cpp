// SPDX-License-Identifier: Apache-2.0
#include "normjit/schedule.h"

#include "support/text.h"
#include "support/try.h"

#include <climits>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view cpu_head = "cpu";
constexpr std::string_view cpu_keys[] = {"row_groups", "row_block", "strip",    "unroll",
                                         "stage",      "prefetch",  "stream_kb"};

}  // namespace

// Reads any number that the fields can hold: legality() knows the ranges, which depend on the target too.
Expected<Schedule> parse_schedule(std::string_view text) {
    NORMJIT_TRY(const auto fields, text::Fields::parse("schedule", text, cpu_keys));
    if (fields.head() != cpu_head) {
        return invalid_argument(fmt::format("schedule: kind '{}': allowed: {}", text::shown(fields.head()), cpu_head));
    }
    Schedule schedule;
    CpuSchedule cpu;
    NORMJIT_RETURN_IF_ERROR(fields.read("row_groups", schedule.row_groups, INT64_MIN, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("row_block", cpu.row_block, INT_MIN, INT_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("strip", cpu.strip, INT_MIN, INT_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("unroll", cpu.unroll, INT_MIN, INT_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("stage", cpu.stage, INT_MIN, INT_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("prefetch", cpu.prefetch, INT_MIN, INT_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("stream_kb", cpu.stream_kb, INT64_MIN, INT64_MAX));
    schedule.device = cpu;
    return schedule;
}

std::string to_text(const Schedule& schedule) {
    const auto& cpu = std::get<CpuSchedule>(schedule.device);
    return fmt::format("{} row_groups={} row_block={} strip={} unroll={} stage={} prefetch={} stream_kb={}", cpu_head,
                       schedule.row_groups, cpu.row_block, cpu.strip, cpu.unroll, cpu.stage, cpu.prefetch,
                       cpu.stream_kb);
}

uint64_t hash(const Schedule& schedule) { return text::hash(to_text(schedule)); }

}  // namespace normjit
