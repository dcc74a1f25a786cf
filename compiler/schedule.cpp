// SPDX-License-Identifier: Apache-2.0
#include "normjit/schedule.h"

#include "support/text.h"
#include "support/try.h"

#include <climits>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view cpu_head = "cpu";
constexpr std::string_view cuda_head = "cuda";
constexpr std::string_view heads[] = {cpu_head, cuda_head};

template <class T>
struct NumberKey {
    std::string_view key;
    int T::* number;
};
constexpr NumberKey<CpuSchedule> cpu_numbers[] = {
    {"row_block", &CpuSchedule::row_block}, {"strip", &CpuSchedule::strip},
    {"unroll", &CpuSchedule::unroll},       {"stage", &CpuSchedule::stage},
    {"keep", &CpuSchedule::keep},           {"overlap", &CpuSchedule::overlap},
    {"prefetch", &CpuSchedule::prefetch},   {"column_parts", &CpuSchedule::column_parts},
    {"teams", &CpuSchedule::teams},
};
constexpr NumberKey<CudaSchedule> cuda_numbers[] = {
    {"threads_per_row", &CudaSchedule::threads_per_row},
    {"rows_per_block", &CudaSchedule::rows_per_block},
    {"cluster", &CudaSchedule::cluster},
    {"blocks_per_sm", &CudaSchedule::blocks_per_sm},
    {"vector_width", &CudaSchedule::vector_width},
    {"stages", &CudaSchedule::stages},
    {"pace", &CudaSchedule::pace},
    {"pace_slack", &CudaSchedule::pace_slack},
};

template <class T, size_t n>
std::vector<std::string_view> keys_of(const NumberKey<T> (&numbers)[n],
                                      std::initializer_list<std::string_view> others) {
    std::vector<std::string_view> keys = {"row_groups"};
    for (const NumberKey<T>& each : numbers) keys.push_back(each.key);
    keys.insert(keys.end(), others);
    return keys;
}

// Any number that the fields can hold is read: legality() knows the ranges, which depend on the target too.
template <class T, size_t n>
Status read_numbers(const text::Fields& fields, const NumberKey<T> (&numbers)[n], T& device) {
    for (const NumberKey<T>& each : numbers) {
        NORMJIT_RETURN_IF_ERROR(fields.read(each.key, device.*each.number, INT_MIN, INT_MAX));
    }
    return {};
}

Expected<Schedule> parse_cpu(std::string_view text) {
    NORMJIT_TRY(const auto fields,
                text::Fields::parse("schedule", text, keys_of(cpu_numbers, {"split_rows", "stream_kb"})));
    Schedule schedule;
    CpuSchedule cpu;
    NORMJIT_RETURN_IF_ERROR(fields.read("row_groups", schedule.row_groups, INT64_MIN, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(read_numbers(fields, cpu_numbers, cpu));
    NORMJIT_RETURN_IF_ERROR(fields.read("split_rows", cpu.split_rows, INT64_MIN, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("stream_kb", cpu.stream_kb, INT64_MIN, INT64_MAX));
    schedule.device = cpu;
    return schedule;
}

Expected<Schedule> parse_cuda(std::string_view text) {
    const auto keys = keys_of(cuda_numbers, {"form", "staging", "keep", "keep_columns"});
    NORMJIT_TRY(const auto fields, text::Fields::parse("schedule", text, keys));
    Schedule schedule;
    CudaSchedule cuda;
    NORMJIT_RETURN_IF_ERROR(fields.read("row_groups", schedule.row_groups, INT64_MIN, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("form", cuda.form, all_cuda_forms));
    NORMJIT_RETURN_IF_ERROR(read_numbers(fields, cuda_numbers, cuda));
    NORMJIT_RETURN_IF_ERROR(fields.read("staging", cuda.staging, all_cuda_stagings));
    NORMJIT_RETURN_IF_ERROR(fields.read("keep", cuda.keep, all_cuda_keeps));
    NORMJIT_RETURN_IF_ERROR(fields.read("keep_columns", cuda.keep_columns, all_cuda_keeps));
    schedule.device = cuda;
    return schedule;
}

template <class T, size_t n>
std::string numbers_text(const NumberKey<T> (&numbers)[n], const T& device) {
    std::string text;
    for (const NumberKey<T>& each : numbers) text += fmt::format(" {}={}", each.key, device.*each.number);
    return text;
}

}  // namespace

std::string_view name(CudaForm form) { return form == CudaForm::rows ? "rows" : "streaming"; }

std::string_view name(CudaStaging staging) {
    constexpr std::string_view names[] = {"registers", "async", "bulk"};
    return names[static_cast<size_t>(staging)];
}

std::string_view name(CudaKeep keep) { return keep == CudaKeep::registers ? "registers" : "shared"; }

Expected<Schedule> parse_schedule(std::string_view text) {
    const std::string_view head = text::first_word(text);
    if (head == cpu_head) return parse_cpu(text);
    if (head == cuda_head) return parse_cuda(text);
    if (head.empty()) return invalid_argument("schedule: the text is empty");
    return invalid_argument(fmt::format("schedule: kind '{}': allowed: {}", text::shown(head), text::join(heads)));
}

std::string to_text(const Schedule& schedule) {
    if (const auto* cpu = std::get_if<CpuSchedule>(&schedule.device)) {
        return fmt::format("{} row_groups={}{} split_rows={} stream_kb={}", cpu_head, schedule.row_groups,
                           numbers_text(cpu_numbers, *cpu), cpu->split_rows, cpu->stream_kb);
    }
    const auto& cuda = std::get<CudaSchedule>(schedule.device);
    return fmt::format("{} row_groups={} form={}{} staging={} keep={} keep_columns={}", cuda_head, schedule.row_groups,
                       name(cuda.form), numbers_text(cuda_numbers, cuda), name(cuda.staging), name(cuda.keep),
                       name(cuda.keep_columns));
}

uint64_t hash(const Schedule& schedule) { return text::hash(to_text(schedule)); }

}  // namespace normjit
