// SPDX-License-Identifier: Apache-2.0
// Reads a file of points for the programs that work on them.
#pragma once

#include "normjit/points.h"
#include "normjit/status.h"

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace normjit {

/// Reads files of points, in this order; the error names the file.
inline Expected<std::vector<PointFile>> read_points(const std::vector<std::string>& paths) {
    std::vector<PointFile> files;
    for (const std::string& path : paths) {
        std::ifstream file(path);
        if (!file) return invalid_argument(path + ": cannot be opened");
        auto points = parse_points(std::string(std::istreambuf_iterator<char>(file), {}));
        if (!points.ok()) return invalid_argument(path + ": " + points.status().message());
        files.push_back(*std::move(points));
    }
    return files;
}

}  // namespace normjit
