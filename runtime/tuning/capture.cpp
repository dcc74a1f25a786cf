// SPDX-License-Identifier: Apache-2.0
#include "tuning/capture.h"

#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>

namespace normjit::tuning {

Expected<std::unique_ptr<Capture>> Capture::open(const std::string& path) {
    // A pipe without a reader is an error. A full pipe loses lines, so that the program never waits.
    auto file = LineFile::open(path, O_NONBLOCK);
    if (!file.ok()) {
        return unavailable(fmt::format("NORMJIT_CAPTURE={}: {}; nothing is captured", path, file.status().message()));
    }
    std::unique_ptr<Capture> capture(new Capture(path, *std::move(file)));
    if (const auto before = read_regular(path)) {
        std::istringstream lines(*before);
        for (std::string line; std::getline(lines, line);) capture->known_.insert(line);
    }
    return capture;
}

Status Capture::add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = known_.insert(line);
    if (!is_new) return {};
    const Status added = file_.add(line);
    if (added.ok()) return {};
    known_.erase(known);
    return failed(fmt::format("NORMJIT_CAPTURE={}: {}", path_, added.message()));
}

}  // namespace normjit::tuning
