// SPDX-License-Identifier: Apache-2.0
// Takes a CUDA schedule from the points: the nearest whose schedule, scaled to the problem, fits the target.
#pragma once

#include "schedule/cuda_fit.h"

#include "normjit/points.h"

#include <optional>
#include <string>

namespace normjit::schedule {

struct CudaFromPoint {
    Schedule schedule;
    std::string reason;  ///< the point, for people: "h100.txt: layernorm rows=4096 cols=1024 x=f16 (distance 0.3)"
};

/// Returns nothing if no point is near enough to be trusted.
std::optional<CudaFromPoint> find_in_points(const PointSet& points, const Spec& spec, const Target& target,
                                            const OperandList& operands, const CudaFit& fit);

}  // namespace normjit::schedule
