// SPDX-License-Identifier: Apache-2.0
// The file of points that normjit tune adds winners to.
#pragma once

#include "normjit/points.h"
#include "normjit/status.h"
#include "normjit/tuning.h"

#include <optional>
#include <string>
#include <vector>

namespace normjit::cli::tune {

/// Returns the problems of the library's points. Some occur twice.
std::vector<Spec> problems_of_points();

/// Reads a file. A file that does not exist has no points.
Expected<PointFile> read_points(const std::string& path);

/// Adds the winners to `file`, where they replace points for the same problems, and writes it unless it is still empty.
/// Fails if a winner is for another device.
Status add_points(const std::vector<std::optional<TuningRecord>>& records, PointFile file, const std::string& path);

}  // namespace normjit::cli::tune
