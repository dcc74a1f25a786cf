// SPDX-License-Identifier: Apache-2.0
#include "normjit/schedule.h"

#include "artifact/cuda_fields.h"
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

/// A field: its key in the text and, for a number, the range of values that a plan can handle.
template <class T>
struct Key {
    std::string_view name;
    std::variant<int T::*, int64_t T::*, CudaForm T::*, CudaStaging T::*, CudaMemory T::*> member;
    int64_t least = INT64_MIN, most = INT64_MAX;
    bool is_power_of_two = false;
};
constexpr int64_t unlimited = INT64_MAX;
constexpr Key<Schedule> common_keys[] = {{"row_groups", &Schedule::row_groups, 1, 1 << 20}};
constexpr Key<CpuSchedule> cpu_keys[] = {
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
constexpr Key<CudaSchedule> cuda_keys[] = {
    {"form", &CudaSchedule::form},
    {"threads_per_row", &CudaSchedule::threads_per_row, 1, 1024},
    {"rows_per_block", &CudaSchedule::rows_per_block, 1, 1024},
    {"rows_per_team", &CudaSchedule::rows_per_team, 0, 1 << 20},
    {"cluster", &CudaSchedule::cluster, 1, 16, true},
    {"blocks_per_sm", &CudaSchedule::blocks_per_sm, 1, 32},
    {"vector_width", &CudaSchedule::vector_width, 1, 16, true},
    {"pipeline_depth", &CudaSchedule::pipeline_depth, 1, 8},
    {"pace", &CudaSchedule::pace, 0, 1 << 20},
    {"pace_slack", &CudaSchedule::pace_slack, 0, 1 << 20},
    {"staging", &CudaSchedule::staging},
    {"row_memory", &CudaSchedule::row_memory},
    {"column_memory", &CudaSchedule::column_memory},
};

constexpr auto& all_of(CudaForm) { return all_cuda_forms; }
constexpr auto& all_of(CudaStaging) { return all_cuda_stagings; }
constexpr auto& all_of(CudaMemory) { return all_cuda_memories; }

/// Reads a word, or any number that the field can hold. legality() checks the ranges, which also depend on the target.
template <class Value>
Status read(const text::Fields& fields, std::string_view key, Value& value) {
    using Limits = std::numeric_limits<Value>;
    if constexpr (std::is_enum_v<Value>)
        return fields.read(key, value, all_of(value));
    else
        return fields.read(key, value, Limits::min(), Limits::max());
}

template <class T, size_t n>
Status read_keys(const text::Fields& fields, const Key<T> (&keys)[n], T& owner) {
    for (const Key<T>& each : keys)
        NORMJIT_RETURN_IF_ERROR(
            std::visit([&](auto member) { return read(fields, each.name, owner.*member); }, each.member));
    return {};
}

template <class T>
Status check(const Key<T>& key, const T& owner) {
    const auto value = std::visit([&](auto member) { return static_cast<int64_t>(owner.*member); }, key.member);
    if (value < key.least || value > key.most)
        return invalid_argument(fmt::format("schedule: {}={}: must be {} to {}", key.name, value, key.least, key.most));
    if (key.is_power_of_two && !std::has_single_bit(static_cast<uint64_t>(value)))
        return invalid_argument(fmt::format("schedule: {}={}: must be a power of two", key.name, value));
    return {};
}

template <class T, size_t n>
Status check_keys(const Key<T> (&keys)[n], const T& owner) {
    for (const Key<T>& each : keys) NORMJIT_RETURN_IF_ERROR(check(each, owner));
    return {};
}

template <class Device, size_t n>
Expected<Schedule> parse(std::string_view text, const Key<Device> (&keys)[n]) {
    std::vector<std::string_view> names;
    for (const auto& each : common_keys) names.push_back(each.name);
    for (const auto& each : keys) names.push_back(each.name);
    NORMJIT_TRY(const auto fields, text::Fields::parse("schedule", text, names));
    Schedule schedule;
    Device device;
    NORMJIT_RETURN_IF_ERROR(read_keys(fields, common_keys, schedule));
    NORMJIT_RETURN_IF_ERROR(read_keys(fields, keys, device));
    schedule.device = device;
    return schedule;
}

template <class Value>
auto shown(Value value) {
    if constexpr (std::is_enum_v<Value>)
        return name(value);
    else
        return value;
}

/// Returns the fields as words. If `usual` is given, returns only those that differ from it.
template <class T, size_t n>
std::string keys_text(const Key<T> (&keys)[n], const T& owner, const T* usual = nullptr) {
    std::string text;
    for (const Key<T>& each : keys) {
        const auto add = [&](auto member) {
            if (usual == nullptr || owner.*member != usual->*member)
                text += fmt::format(" {}={}", each.name, shown(owner.*member));
        };
        std::visit(add, each.member);
    }
    return text;
}

std::string schedule_text(const Schedule& schedule, bool is_brief) {
    const auto text = [&](std::string_view head, const auto& keys, const auto& device) {
        const std::decay_t<decltype(device)> usual;
        return fmt::format("{}{}{}", head, keys_text(common_keys, schedule),
                           keys_text(keys, device, is_brief ? &usual : nullptr));
    };
    const auto* cpu = std::get_if<CpuSchedule>(&schedule.device);
    return cpu != nullptr ? text(cpu_head, cpu_keys, *cpu)
                          : text(cuda_head, cuda_keys, std::get<CudaSchedule>(schedule.device));
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
    if (head == cpu_head) return parse<CpuSchedule>(text, cpu_keys);
    if (head == cuda_head) return parse<CudaSchedule>(text, cuda_keys);
    if (head.empty()) return invalid_argument("schedule: the text is empty");
    return invalid_argument(
        fmt::format("schedule: kind '{}': allowed: {}", text::shown(head), text::join(schedule_heads)));
}

std::string to_text(const Schedule& schedule) { return schedule_text(schedule, false); }

std::string brief_text(const Schedule& schedule) { return schedule_text(schedule, true); }

Status check_ranges(const Schedule& schedule, const Target& target) {
    Key<Schedule> row_groups = common_keys[0];
    if (target.is_cuda()) row_groups.most = most_cuda_row_groups;
    NORMJIT_RETURN_IF_ERROR(check(row_groups, schedule));
    const auto* cpu = std::get_if<CpuSchedule>(&schedule.device);
    if ((cpu == nullptr) != target.is_cuda()) {
        return invalid_argument(fmt::format("schedule: is of kind {}; target '{}' needs kind {}",
                                            target.is_cuda() ? cpu_head : cuda_head, to_text(target),
                                            target.is_cuda() ? cuda_head : cpu_head));
    }
    if (cpu != nullptr) return check_keys(cpu_keys, *cpu);
    return check_keys(cuda_keys, std::get<CudaSchedule>(schedule.device));
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

std::vector<CudaField> fields(const CudaSchedule& schedule) {
    std::vector<CudaField> all;
    for (const auto& key : cuda_keys)
        std::visit([&](auto member) { all.push_back({key.name, schedule.*member}); }, key.member);
    return all;
}

uint64_t hash(const Schedule& schedule) { return text::hash(to_text(schedule)); }

}  // namespace normjit
