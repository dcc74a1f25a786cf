// SPDX-License-Identifier: Apache-2.0
#include "normjit/schedule.h"

#include "support/text.h"
#include "support/try.h"

#include <bit>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view cpu_head = "cpu";
constexpr std::string_view cuda_head = "cuda";
constexpr std::string_view schedule_heads[] = {cpu_head, cuda_head};

/// A numeric field: its key in the text, and the range of values that a plan can handle.
template <class T>
struct NumberKey {
    std::string_view key;
    std::variant<int T::*, int64_t T::*> member;
    int64_t least, most;
    bool is_power_of_two = false;
};
constexpr int64_t unlimited = INT64_MAX;
constexpr NumberKey<Schedule> common_numbers[] = {{"row_groups", &Schedule::row_groups, 1, 1 << 20}};
constexpr NumberKey<CpuSchedule> cpu_numbers[] = {
    {"row_block", &CpuSchedule::row_block, 1, 64},
    {"strip", &CpuSchedule::strip, 1, 8},
    {"unroll", &CpuSchedule::unroll, 1, 8},
    {"cache_columns", &CpuSchedule::cache_columns, 0, 1},
    {"cache_elements", &CpuSchedule::cache_elements, 0, 1},
    {"overlap", &CpuSchedule::overlap, 0, 1},
    {"prefetch", &CpuSchedule::prefetch, 0, 3},
    {"column_ranges", &CpuSchedule::column_ranges, 1, 1024},
    {"thread_groups", &CpuSchedule::thread_groups, 1, 1024},
    {"split_rows", &CpuSchedule::split_rows, 0, unlimited},
    {"nontemporal_kb", &CpuSchedule::nontemporal_kb, -1, most_nontemporal_kb},
};
constexpr NumberKey<CudaSchedule> cuda_numbers[] = {
    {"threads_per_row", &CudaSchedule::threads_per_row, 1, 1024},
    {"rows_per_block", &CudaSchedule::rows_per_block, 1, 1024},
    {"rows_per_team", &CudaSchedule::rows_per_team, 0, 1 << 20},
    {"cluster", &CudaSchedule::cluster, 1, 16, true},
    {"blocks_per_sm", &CudaSchedule::blocks_per_sm, 1, 32},
    {"vector_width", &CudaSchedule::vector_width, 1, 16, true},
    {"pipeline_depth", &CudaSchedule::pipeline_depth, 1, 8},
    {"pace", &CudaSchedule::pace, 0, 1 << 20},
    {"pace_slack", &CudaSchedule::pace_slack, 0, 1 << 20},
};

template <class T>
int64_t get(const NumberKey<T>& key, const T& owner) {
    return std::visit([&](auto member) -> int64_t { return owner.*member; }, key.member);
}

template <class T, size_t n>
void add_keys(std::vector<std::string_view>& keys, const NumberKey<T> (&numbers)[n]) {
    for (const NumberKey<T>& each : numbers) keys.push_back(each.key);
}

// Reads any number that the fields can hold. legality() checks the ranges, which also depend on the target.
template <class T, size_t n>
Status read_numbers(const text::Fields& fields, const NumberKey<T> (&numbers)[n], T& owner) {
    for (const NumberKey<T>& each : numbers) {
        const auto read = [&](auto member) {
            using Number = std::remove_reference_t<decltype(owner.*member)>;
            using Limits = std::numeric_limits<Number>;
            return fields.read(each.key, owner.*member, Limits::min(), Limits::max());
        };
        NORMJIT_RETURN_IF_ERROR(std::visit(read, each.member));
    }
    return {};
}

template <class T>
Status check(const NumberKey<T>& key, const T& owner) {
    const int64_t value = get(key, owner);
    if (value < key.least || value > key.most)
        return invalid_argument(fmt::format("schedule: {}={}: must be {} to {}", key.key, value, key.least, key.most));
    if (key.is_power_of_two && !std::has_single_bit(static_cast<uint64_t>(value)))
        return invalid_argument(fmt::format("schedule: {}={}: must be a power of two", key.key, value));
    return {};
}

template <class T, size_t n>
Status check_numbers(const NumberKey<T> (&numbers)[n], const T& owner) {
    for (const NumberKey<T>& each : numbers) NORMJIT_RETURN_IF_ERROR(check(each, owner));
    return {};
}

Expected<Schedule> parse_cpu(std::string_view text) {
    std::vector<std::string_view> keys;
    add_keys(keys, common_numbers);
    add_keys(keys, cpu_numbers);
    NORMJIT_TRY(const auto fields, text::Fields::parse("schedule", text, keys));
    Schedule schedule;
    CpuSchedule cpu;
    NORMJIT_RETURN_IF_ERROR(read_numbers(fields, common_numbers, schedule));
    NORMJIT_RETURN_IF_ERROR(read_numbers(fields, cpu_numbers, cpu));
    schedule.device = cpu;
    return schedule;
}

Expected<Schedule> parse_cuda(std::string_view text) {
    std::vector<std::string_view> keys;
    add_keys(keys, common_numbers);
    add_keys(keys, cuda_numbers);
    keys.insert(keys.end(), {"form", "staging", "row_memory", "column_memory"});
    NORMJIT_TRY(const auto fields, text::Fields::parse("schedule", text, keys));
    Schedule schedule;
    CudaSchedule cuda;
    NORMJIT_RETURN_IF_ERROR(read_numbers(fields, common_numbers, schedule));
    NORMJIT_RETURN_IF_ERROR(read_numbers(fields, cuda_numbers, cuda));
    NORMJIT_RETURN_IF_ERROR(fields.read("form", cuda.form, all_cuda_forms));
    NORMJIT_RETURN_IF_ERROR(fields.read("staging", cuda.staging, all_cuda_stagings));
    NORMJIT_RETURN_IF_ERROR(fields.read("row_memory", cuda.row_memory, all_cuda_memories));
    NORMJIT_RETURN_IF_ERROR(fields.read("column_memory", cuda.column_memory, all_cuda_memories));
    schedule.device = cuda;
    return schedule;
}

/// Returns the fields as words. If `usual` is given, returns only those that differ from it.
template <class T, size_t n>
std::string numbers_text(const NumberKey<T> (&numbers)[n], const T& owner, const T* usual = nullptr) {
    std::string text;
    for (const NumberKey<T>& each : numbers) {
        if (usual == nullptr || get(each, owner) != get(each, *usual))
            text += fmt::format(" {}={}", each.key, get(each, owner));
    }
    return text;
}

std::string schedule_text(const Schedule& schedule, bool is_brief) {
    const std::string groups = numbers_text(common_numbers, schedule);
    if (const auto* cpu = std::get_if<CpuSchedule>(&schedule.device)) {
        static constexpr CpuSchedule usual;
        return fmt::format("{}{}{}", cpu_head, groups, numbers_text(cpu_numbers, *cpu, is_brief ? &usual : nullptr));
    }
    static constexpr CudaSchedule usual;
    const auto& cuda = std::get<CudaSchedule>(schedule.device);
    const auto word = [&](std::string_view key, auto value, auto usual_value) {
        return is_brief && value == usual_value ? std::string() : fmt::format(" {}={}", key, name(value));
    };
    return fmt::format("{}{}{}{}{}{}{}", cuda_head, groups, word("form", cuda.form, usual.form),
                       numbers_text(cuda_numbers, cuda, is_brief ? &usual : nullptr),
                       word("staging", cuda.staging, usual.staging),
                       word("row_memory", cuda.row_memory, usual.row_memory),
                       word("column_memory", cuda.column_memory, usual.column_memory));
}

}  // namespace

std::string_view name(CudaForm form) { return form == CudaForm::rows ? "rows" : "two_pass"; }

std::string_view name(CudaStaging staging) {
    constexpr std::string_view names[] = {"registers", "async", "bulk"};
    return names[static_cast<size_t>(staging)];
}

std::string_view name(CudaMemory memory) {
    constexpr std::string_view names[] = {"registers", "shared", "global"};
    return names[static_cast<size_t>(memory)];
}

Expected<Schedule> parse_schedule(std::string_view text) {
    const std::string_view head = text::first_word(text);
    if (head == cpu_head) return parse_cpu(text);
    if (head == cuda_head) return parse_cuda(text);
    if (head.empty()) return invalid_argument("schedule: the text is empty");
    return invalid_argument(
        fmt::format("schedule: kind '{}': allowed: {}", text::shown(head), text::join(schedule_heads)));
}

std::string to_text(const Schedule& schedule) { return schedule_text(schedule, false); }

std::string brief_text(const Schedule& schedule) { return schedule_text(schedule, true); }

Status check_ranges(const Schedule& schedule, const Target& target) {
    NumberKey<Schedule> row_groups = common_numbers[0];
    if (target.is_cuda()) row_groups.most = most_cuda_row_groups;
    NORMJIT_RETURN_IF_ERROR(check(row_groups, schedule));
    const auto* cpu = std::get_if<CpuSchedule>(&schedule.device);
    if ((cpu == nullptr) != target.is_cuda()) {
        return invalid_argument(fmt::format("schedule: is of kind {}; target '{}' needs kind {}",
                                            target.is_cuda() ? cpu_head : cuda_head, to_text(target),
                                            target.is_cuda() ? cuda_head : cpu_head));
    }
    if (cpu != nullptr) return check_numbers(cpu_numbers, *cpu);
    return check_numbers(cuda_numbers, std::get<CudaSchedule>(schedule.device));
}

bool sum_rows_alike(const Schedule& a, const Schedule& b) {
    if (const auto* cpu = std::get_if<CpuSchedule>(&a.device)) {
        const auto* other = std::get_if<CpuSchedule>(&b.device);  // cached columns are rounded before use
        return other != nullptr && cpu->unroll == other->unroll && cpu->cache_columns == other->cache_columns;
    }
    const auto order = [](const CudaSchedule& s) {
        return std::tuple(s.form, s.threads_per_row, s.cluster, s.vector_width);
    };
    const auto* other = std::get_if<CudaSchedule>(&b.device);
    return other != nullptr && order(std::get<CudaSchedule>(a.device)) == order(*other);
}

uint64_t hash(const Schedule& schedule) { return text::hash(to_text(schedule)); }

}  // namespace normjit
