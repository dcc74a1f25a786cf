// SPDX-License-Identifier: Apache-2.0
// Takes CUDA schedules from the nearest points, scales them to the problem, and keeps those that fit the target.
#pragma once

#include "schedule/cuda_fit.h"

#include "normjit/points.h"

#include <cstddef>
#include <string>
#include <vector>

namespace normjit::schedule {

/// A schedule and the point that it was scaled from. Valid as long as the points.
struct CudaFromPoint {
    Schedule schedule;
    const PointSet::Source* source;
    const Point* point;
    double distance;  ///< how far the point's problem and device are from the given ones
    bool is_alike;    ///< the devices are of the same kind
};
/// Returns a description of the point: "point of h100.txt, distance 0.30: layernorm rows=4096 cols=1024".
std::string describe(const CudaFromPoint& from);

/// Returns the schedules of the points that are nearest to the problem and target of `fit`, nearest first: at most
/// `count`, all different.
std::vector<CudaFromPoint> find_in_points(const PointSet& points, const CudaFit& fit, size_t count);

}  // namespace normjit::schedule
