// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/memory.h"

#include "device/cpu/control_groups.h"
#include "support/text.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <unistd.h>

namespace normjit::cpu {

namespace {

/// Returns how much memory programs may take before the system swaps, or all memory if the system does not report that.
int64_t available_memory() {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        constexpr std::string_view key = "MemAvailable:", unit = " kB";
        if (!line.starts_with(key) || !line.ends_with(unit)) continue;
        const std::string_view number =
            std::string_view(line).substr(key.size(), line.size() - key.size() - unit.size());
        if (const auto kilobytes = text::parse_int(text::trim(number), 0, INT64_MAX >> 10)) return *kilobytes << 10;
    }
    return physical_memory();
}

}  // namespace

int64_t physical_memory() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

int64_t usable_memory() {
    const int64_t all = physical_memory();
    return std::min(all, ControlGroups().memory().value_or(all));
}

int64_t spare_memory() {
    const int64_t available = available_memory();
    return std::min(available, ControlGroups().free_memory().value_or(available)) / 4;
}

}  // namespace normjit::cpu
