// SPDX-License-Identifier: Apache-2.0
#include "tune/points_file.h"

#include "command_line/files.h"
#include "support/try.h"

#include <filesystem>

#include <fmt/format.h>

namespace normjit::cli::tune {

std::vector<Spec> problems_of_points() {
    std::vector<Spec> specs;
    for (const PointFile& file : PointSet::shipped().files()) {
        for (const Point& point : file.points) specs.push_back(point.spec);
    }
    return specs;
}

Expected<PointFile> read_points(const std::string& path) {
    if (std::error_code error; !std::filesystem::exists(path, error)) return PointFile();
    NORMJIT_TRY(const std::string text, read_text_file(path));
    auto file = parse_points(text);
    if (!file.ok()) return invalid_argument(fmt::format("--points {}: {}", path, file.status().message()));
    return file;
}

Status add_points(const std::vector<std::optional<TuningRecord>>& records, PointFile file, const std::string& path) {
    for (const auto& record : records) {
        if (!record) continue;
        const DeviceClass& device = record->device;
        if (file.points.empty()) {
            file.device = device.model;
            file.target = device.target;
        } else if (file.target != device.target || file.device != device.model) {
            return invalid_argument(fmt::format("--points {}: is of {} ({}); this is {} ({})", path, file.device,
                                                to_text(file.target), device.model, to_text(device.target)));
        }
        std::erase_if(file.points, [&](const Point& point) { return point.spec == record->spec; });
        file.points.push_back({record->spec, record->schedule, record->share, record->date});
    }
    return file.points.empty() ? Status() : write_text(path, to_text(file));
}

}  // namespace normjit::cli::tune
