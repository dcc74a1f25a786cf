// SPDX-License-Identifier: Apache-2.0
#include "tuning/advisor.h"

#include "tuning/shipped.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace normjit::tuning {

namespace {

/// A file of records is text that people write and merge; beyond this it is something else.
constexpr std::streamoff most_bytes = 64 << 20;

Expected<std::string> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return unavailable("cannot be opened");
    const std::streamoff bytes = file.tellg();
    if (bytes < 0 || bytes > most_bytes) return unavailable(fmt::format("is no file of at most {} bytes", most_bytes));
    std::string text(static_cast<size_t>(bytes), '\0');
    file.seekg(0);
    if (!file.read(text.data(), bytes)) return unavailable("cannot be read");
    return text;
}

}  // namespace

std::string_view shipped_records(const Target& target) {
    const std::string_view wanted = target.isa == Isa::cuda ? "cuda_records.jsonl" : "cpu_records.jsonl";
    for (const Shipped& each : shipped()) {
        if (each.name == wanted) return each.text;
    }
    return {};
}

Advisor::Advisor(DeviceClass device, const EngineOptions& options, const Environment& environment, const Log& log)
    : device_(std::move(device)), log_(log) {
    const auto warn = [&](const std::string& message) { log_(LogLevel::warning, message.c_str()); };
    const auto add = [&](std::string_view text, const std::string& source) {
        for (const std::string& warning : records_.add(text, source)) warn(warning);
    };
    const auto& files = options.record_files.empty() ? environment.record_files : options.record_files;
    if (options.shipped_records && environment.shipped_records) add(shipped_records(device_.target), "shipped records");
    for (const std::string& path : files) {
        const auto text = read_file(path);
        if (text) {
            add(*text, path);
        } else {
            warn(fmt::format("{}: {}; its records are not used", path, text.status().message()));
        }
    }
    if (environment.capture_file.empty()) return;
    auto capture = Capture::open(environment.capture_file);
    if (capture) {
        capture_ = *std::move(capture);
    } else {
        warn(capture.status().message());
    }
}

ChosenSchedule Advisor::choose(const Spec& spec) const {
    ChosenSchedule chosen = records_.find(spec, device_);
    for (const std::string& warning : chosen.warnings) log_(LogLevel::warning, warning.c_str());
    return chosen;
}

void Advisor::note(const Spec& spec) const {
    if (capture_ == nullptr) return;
    if (const Status status = capture_->add(spec); !status.ok()) log_(LogLevel::warning, status.message().c_str());
}

}  // namespace normjit::tuning
