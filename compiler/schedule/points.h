// SPDX-License-Identifier: Apache-2.0
// The points of a device in the form that heuristics search.
#pragma once

#include "schedule/cuda_features.h"

#include "normjit/points.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace normjit {

/// A file. A point is parsed when a search first comes near it.
struct PointSet::Source {
    /// `text` is the content of a file. Lines that are not points are skipped.
    Source(std::string called, std::string of);

    /// What a search needs to know about a point of a GPU.
    struct CudaPoint {
        Point point;
        schedule::CudaFeatures features;
        int64_t most_groups;  ///< how many row groups of its schedule run at once
    };
    /// The line of a point. It is parsed when a search first needs it; any thread may call parse().
    class CudaLine {
      public:
        explicit CudaLine(std::string_view line) : glance_(schedule::glance(line)), line_(line) {}
        ~CudaLine() { delete parsed_.load(); }
        CudaLine(const CudaLine&) = delete;
        CudaLine& operator=(const CudaLine&) = delete;

        const schedule::CudaGlance& glance() const { return glance_; }
        /// Returns null if the line is not a valid point, which is possible in a file made in memory.
        const CudaPoint* parse(const Target& target) const;

      private:
        const schedule::CudaGlance glance_;
        const std::string_view line_;
        mutable std::atomic<const CudaPoint*> parsed_ = nullptr;
    };
    const std::string name;  ///< "h100.txt"
    const std::string text;
    std::string device;  ///< "NVIDIA H100 80GB HBM3"
    Target target;
    std::deque<CudaLine> cuda;  ///< empty if the device is not a GPU
};

}  // namespace normjit
