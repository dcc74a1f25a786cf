// SPDX-License-Identifier: Apache-2.0
#include "tuning/capture.h"

#include "tuning/text_file.h"

#include <cerrno>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace normjit::tuning {

Expected<std::unique_ptr<Capture>> Capture::open(const std::string& path) {
    // A pipe that nobody reads is an error, and one that is full costs lines, not the program's time.
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor < 0) {
        return unavailable(fmt::format("NORMJIT_CAPTURE={}: {}; nothing is captured", path, std::strerror(errno)));
    }
    std::unique_ptr<Capture> capture(new Capture(path, descriptor));
    if (const auto before = read_text_file(path)) {
        std::istringstream lines(*before);
        for (std::string line; std::getline(lines, line);) capture->known_.insert(line);
    }
    return capture;
}

Capture::~Capture() { ::close(descriptor_); }

Status Capture::add(const Spec& spec) {
    std::string line = to_text(spec);
    const std::lock_guard lock(mutex_);
    if (!known_.insert(line).second) return {};
    line += '\n';
    const ssize_t written = ::write(descriptor_, line.data(), line.size());
    if (written == static_cast<ssize_t>(line.size())) return {};
    return failed(
        fmt::format("NORMJIT_CAPTURE={}: {}", path_, written < 0 ? std::strerror(errno) : "the disk is full"));
}

}  // namespace normjit::tuning
