// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/control_groups.h"

#include "device/cpu/system.h"
#include "support/contains.h"
#include "support/text.h"

#include <algorithm>
#include <fstream>
#include <vector>

namespace normjit::cpu {

namespace {

/// The files of a version's memory controller.
struct MemoryFiles {
    std::string_view limit, used, droppable;  ///< the last is a key in memory.stat
};
constexpr MemoryFiles files_of_version_2 = {"/memory.max", "/memory.current", "inactive_file "};
constexpr MemoryFiles files_of_version_1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "};

/// Returns the path of the process's group, which is "/" in most containers. Version 2 writes it in a line
/// "0::<path>", version 1 in one such as "4:cpu,cpuacct:<path>".
std::string group_of(const ControlGroups& groups, std::string_view controller) {
    std::ifstream file(groups.own);
    for (std::string line; std::getline(file, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == line.npos || second == line.npos) continue;
        const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
        const auto words = text::split(names, ',');
        const bool is_named = contains(words, controller);
        if (controller.empty() ? names.empty() : is_named) return line.substr(second + 1);
    }
    return "/";
}

/// Returns the folders of the process's group and of the groups that contain it. The controller is empty for version 2.
std::vector<std::string> folders_of(const ControlGroups& groups, std::string_view controller) {
    const std::string root = groups.folder + (controller.empty() ? "" : "/") + std::string(controller);
    std::vector<std::string> folders;
    std::string group = group_of(groups, controller);
    for (size_t slash = group.rfind('/'); slash != group.npos; slash = group.rfind('/')) {
        if (slash + 1 < group.size()) folders.push_back(root + group);
        group.resize(slash);
    }
    folders.push_back(root);
    return folders;
}

/// Returns the smaller of two limits, of which each may be missing.
template <typename Number>
std::optional<Number> smaller(std::optional<Number> a, std::optional<Number> b) {
    return a && b ? std::min(a, b) : a ? a : b;
}

/// Returns the smallest of what `read` finds in the folders.
template <typename Number, typename Read>
std::optional<Number> smallest(const std::vector<std::string>& folders, Read read) {
    std::optional<Number> least;
    for (const std::string& folder : folders) least = smaller<Number>(least, read(folder));
    return least;
}

std::optional<int64_t> number_in(const std::string& path) {
    const auto number = text::parse_int(first_line(path), 0, INT64_MAX);
    return number.ok() ? std::optional(*number) : std::nullopt;
}

int64_t droppable_bytes(const std::string& path, std::string_view key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(key)) continue;
        const auto number = text::parse_int(std::string_view(line).substr(key.size()), 0, INT64_MAX);
        return number.ok() ? *number : 0;
    }
    return 0;
}

std::optional<int64_t> limit_of(const std::string& folder, const MemoryFiles& files) {
    return number_in(folder + std::string(files.limit));
}

std::optional<int64_t> free_bytes(const std::string& folder, const MemoryFiles& files) {
    const auto limit = limit_of(folder, files);
    if (!limit) return std::nullopt;
    const int64_t used = number_in(folder + std::string(files.used)).value_or(0);
    const int64_t kept = std::max<int64_t>(used - droppable_bytes(folder + "/memory.stat", files.droppable), 0);
    return std::max<int64_t>(*limit - kept, 0);
}

/// Returns the smallest of what `read` finds in the folders of a group's memory, in either version.
template <typename Read>
std::optional<int64_t> smallest_memory(const ControlGroups& groups, Read read) {
    const auto in = [&](std::string_view controller, const MemoryFiles& files) {
        return smallest<int64_t>(folders_of(groups, controller),
                                 [&](const std::string& folder) { return read(folder, files); });
    };
    return smaller(in("", files_of_version_2), in("memory", files_of_version_1));
}

}  // namespace

std::optional<int> ControlGroups::cores() const {
    const auto newer = smallest<int>(folders_of(*this, ""), [](const std::string& folder) {
        return cores_of_quota(first_line(folder + "/cpu.max"));
    });
    const auto older = smallest<int>(folders_of(*this, "cpu"), [](const std::string& folder) {
        return cores_of_quota(first_line(folder + "/cpu.cfs_quota_us") + " " +
                              first_line(folder + "/cpu.cfs_period_us"));
    });
    return smaller(newer, older);
}

std::optional<int64_t> ControlGroups::memory() const { return smallest_memory(*this, limit_of); }

std::optional<int64_t> ControlGroups::free_memory() const { return smallest_memory(*this, free_bytes); }

std::optional<int> cores_of_quota(std::string_view cpu_max) {
    const size_t space = cpu_max.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    const auto quota = text::parse_int(cpu_max.substr(0, space), 1, INT64_MAX / 2);
    const auto period = text::parse_int(text::trim(cpu_max.substr(space)), 1, INT64_MAX / 2);
    if (!quota.ok() || !period.ok()) return std::nullopt;
    return static_cast<int>(std::min<int64_t>((*quota + *period - 1) / *period, INT32_MAX));
}

}  // namespace normjit::cpu
