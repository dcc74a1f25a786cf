// SPDX-License-Identifier: Apache-2.0
// The points of a device as heuristics search them, and the files that are in the library.
#pragma once

#include "schedule/cuda_features.h"

#include "normjit/points.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

struct PointSet::Source {
    Source(PointFile of, std::string called);

    /// What searches need of a point of a GPU.
    struct CudaPoint {
        schedule::CudaFeatures features;
        int64_t most_groups;  ///< how many row groups of its schedule run at once
    };
    PointFile file;
    std::string name;             ///< "h100.txt"
    std::vector<CudaPoint> cuda;  ///< of each point, if the device is a GPU
};

namespace schedule {

/// A file of compiler/schedule/points, embedded at build time.
struct ShippedPoints {
    std::string_view name, text;
};
std::span<const ShippedPoints> shipped_points();

}  // namespace schedule

}  // namespace normjit
