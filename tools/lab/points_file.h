// SPDX-License-Identifier: Apache-2.0
// Reads files of points, or of the tuning records that points are made from, for the programs that work with them.
#pragma once

#include "normjit/points.h"
#include "normjit/status.h"
#include "normjit/tuning.h"

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace normjit {

/// Returns the problems and winners of tuning records of one device.
inline Expected<PointFile> points_of_records(std::istream& records) {
    PointFile file;
    for (std::string line; std::getline(records, line);) {
        const auto record = parse_record(line);
        if (!record.ok()) return record.status();
        const auto& [model, target, threads] = record->device;
        if (file.points.empty()) file = {model, target, {}};
        if (model != file.device || target != file.target) return invalid_argument("records of several devices");
        file.points.push_back({record->spec, record->schedule, record->share, record->date});
    }
    return file;
}

/// Reads files of points or records, in this order. The error names the file.
inline Expected<std::vector<PointFile>> read_points(const std::vector<std::string>& paths) {
    std::vector<PointFile> files;
    for (const std::string& path : paths) {
        std::ifstream file(path);
        std::stringstream text;
        if (!(text << file.rdbuf())) return invalid_argument(path + ": has nothing that can be read");
        auto points = are_points(text.str()) ? parse_points(text.str()) : points_of_records(text);
        if (!points.ok()) return invalid_argument(path + ": " + points.status().message());
        files.push_back(*std::move(points));
    }
    return files;
}

}  // namespace normjit
