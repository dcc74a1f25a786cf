// SPDX-License-Identifier: Apache-2.0
// Takes CUDA schedules from the points: those of the nearest, scaled to the problem, which fit the target.
#pragma once

#include "schedule/cuda_fit.h"

#include "normjit/points.h"

#include <cstddef>
#include <string>
#include <vector>

namespace normjit::schedule {

struct CudaFromPoint {
    Schedule schedule;
    double distance;     ///< how little the point's problem and device tell about these
    std::string reason;  ///< the point, for people: "point of h100.txt, distance 0.30: layernorm rows=4096 cols=1024"
};

/// Returns the schedules of points nearer than `farthest`, the most promising first: at most `count`, all different.
std::vector<CudaFromPoint> find_in_points(const PointSet& points, const Spec& spec, const Target& target,
                                          const OperandList& operands, const CudaFit& fit, double farthest,
                                          size_t count);

}  // namespace normjit::schedule
