// SPDX-License-Identifier: Apache-2.0
// The points of a device as heuristics search them, and the files that are in the library.
#pragma once

#include "schedule/cuda_features.h"

#include "normjit/points.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// A file. Its points are parsed when a search first comes near them.
struct PointSet::Source {
    /// `text`: of a file. Lines that are no points are skipped.
    Source(std::string called, std::string of);

    /// What searches need of a point of a GPU.
    struct CudaPoint {
        Point point;
        schedule::CudaFeatures features;
        int64_t most_groups;  ///< how many row groups of its schedule run at once
    };
    /// The points that look alike at a glance. Any thread may ask for them.
    class CudaBlock {
      public:
        CudaBlock() = default;
        ~CudaBlock() { delete points_.load(); }
        CudaBlock(const CudaBlock&) = delete;
        CudaBlock& operator=(const CudaBlock&) = delete;

        void add(std::string_view line) { lines_.push_back(line); }
        const std::vector<CudaPoint>& points(const Target& target) const;

      private:
        std::vector<std::string_view> lines_;
        mutable std::atomic<const std::vector<CudaPoint>*> points_ = nullptr;
    };
    const std::string name;  ///< "h100.txt"
    const std::string text;
    std::string device;  ///< "NVIDIA H100 80GB HBM3"
    Target target;
    std::map<schedule::CudaGlance, CudaBlock> cuda;  ///< empty if the device is no GPU
};

namespace schedule {

/// A file of compiler/schedule/points, embedded at build time.
struct ShippedPoints {
    std::string_view name, text;
};
std::span<const ShippedPoints> shipped_points();

}  // namespace schedule

}  // namespace normjit
