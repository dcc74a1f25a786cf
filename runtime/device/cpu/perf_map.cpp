// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/perf_map.h"

#include "normjit/kernel_name.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace normjit::cpu {

void write_perf_map(const Artifact& artifact, const void* code) {
    std::vector<EntryPoint> entries = artifact.entries;
    std::ranges::sort(entries, {}, &EntryPoint::offset);
    std::string lines;
    for (size_t i = 0; i < entries.size(); ++i) {
        // A function ends where the next one starts. The constants belong to the last one.
        const int64_t end = i + 1 < entries.size() ? entries[i + 1].offset : static_cast<int64_t>(artifact.code.size());
        lines +=
            fmt::format("{:x} {:x} {}\n", reinterpret_cast<uintptr_t>(code) + static_cast<uintptr_t>(entries[i].offset),
                        end - entries[i].offset, kernel_name(artifact.spec, entries[i].name));
    }
    const std::string path = fmt::format("/tmp/perf-{}.map", getpid());
    // O_NOFOLLOW, because another user may have put a link here.
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0) return;
    [[maybe_unused]] const ssize_t written = write(file, lines.data(), lines.size());
    close(file);
}

}  // namespace normjit::cpu
