// SPDX-License-Identifier: Apache-2.0
#include "tuning/advisor.h"

#include "support/embedded.h"
#include "system/file_io.h"

#include <fmt/format.h>

namespace normjit::tuning {

std::string_view shipped_records(const Target& target) {
    return target.is_cuda() ? std::string_view() : embedded::records().front().text;
}

Advisor::Advisor(DeviceClass device, const EngineOptions& options, const Environment& environment, const Log& log)
    : device_(std::move(device)), log_(log) {
    const auto warn = [&](const std::string& message) { log_(LogLevel::warning, message.c_str()); };
    const auto& files = options.record_files ? *options.record_files : environment.record_files;
    if (options.shipped_records && environment.shipped_records) {
        records_.add_unread(shipped_records(device_.target), "shipped records");
    }
    std::optional<PointSet> points;
    for (const std::string& path : files) {
        const auto text = read_regular(path);
        if (text && are_points(*text)) {
            auto file = parse_points(*text);
            if (file) {
                if (!points) points = PointSet::shipped();
                points->add(*file, path);
            } else {
                warn(fmt::format("{}: {}; its points are not used", path, file.status().message()));
            }
        } else if (text) {
            for (const std::string& warning : records_.add(*text, path)) warn(warning);
        } else {
            warn(fmt::format("{}: {}; its records are not used", path, text.status().message()));
        }
    }
    if (points) records_.set_points(*std::move(points));
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

void Advisor::note(const Spec& spec, const Spec& expected) const {
    if (capture_ == nullptr) return;
    std::string line = to_text(expected);
    const auto mark = [&](std::string_view key) { line.insert(line.rfind(key) + key.size(), "~"); };
    if (expected.rows != spec.rows) mark(" rows=");
    if (expected.slices != spec.slices) mark(" slices=");
    if (const Status status = capture_->add(line); !status.ok()) log_(LogLevel::warning, status.message().c_str());
}

}  // namespace normjit::tuning
