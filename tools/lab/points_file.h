// SPDX-License-Identifier: Apache-2.0
// Reads a file of points for the programs that work on them.
#pragma once

#include "normjit/points.h"
#include "normjit/status.h"

#include <fstream>
#include <iterator>
#include <string>

namespace normjit {

inline Expected<PointFile> read_points(const std::string& path) {
    std::ifstream file(path);
    if (!file) return invalid_argument("cannot be opened");
    return parse_points(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace normjit
