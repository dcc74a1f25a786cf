// SPDX-License-Identifier: Apache-2.0
// What the system's control groups allow this process: the processors' time, and memory. The limits of a group hold
// for the groups in it. Versions 1 and 2 are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace normjit::cpu {

/// Every function returns nothing if there is no limit.
struct ControlGroups {
    std::string folder = "/sys/fs/cgroup";  ///< where the system shows all groups
    std::string own = "/proc/self/cgroup";  ///< the file that names the groups of this process

    /// Returns the smallest quota in cores, rounded up.
    std::optional<int> cores() const;
    /// Returns the bytes that the processes of a group may use, from the group where they are the fewest.
    std::optional<int64_t> memory() const;
    /// Returns the bytes that they may still use in that group. Pages of files that the system can drop count as free.
    std::optional<int64_t> free_memory() const;
};

/// Returns the number of cores that the text of a cpu.max file allows ("<quota> <period>", in microseconds), rounded
/// up; nothing for "max" and for malformed text.
std::optional<int> cores_of_quota(std::string_view cpu_max);

}  // namespace normjit::cpu
