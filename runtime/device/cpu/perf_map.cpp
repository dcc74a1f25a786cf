// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/perf_map.h"

#include "system/file_io.h"

#include "normjit/kernel_name.h"

#include <algorithm>
#include <string>
#include <tuple>
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
        lines += fmt::format("{}{:x} {:x} {}", i > 0 ? "\n" : "",
                             reinterpret_cast<uintptr_t>(code) + static_cast<uintptr_t>(entries[i].offset),
                             end - entries[i].offset, kernel_name(artifact.spec, entries[i].name));
    }
    // The name can be guessed, so another user may have put a link or a pipe here.
    auto file = LineFile::open(fmt::format("/tmp/perf-{}.map", getpid()), O_NOFOLLOW | O_NONBLOCK);
    if (file.ok()) std::ignore = file->add(lines);
}

}  // namespace normjit::cpu
