// SPDX-License-Identifier: Apache-2.0
// Are the gradients right? Those of a launch, and those that a framework computed, against double precision.
#pragma once

#include "problem.h"

#include "normjit/dtype.h"
#include "normjit/tensor.h"

#include <optional>
#include <vector>

namespace normjit::cli {

/// A gradient from elsewhere, as many elements as the problem's own.
struct ForeignGradient {
    DType type = DType::f32;
    Buffer data;
};

/// How far a gradient is from the double reference.
struct Distance {
    DType type = DType::f32;  ///< of its elements
    double worst_ulp = 0;     ///< the largest |value - reference| of all elements, in units of the type's spacing there
    bool holds = true;        ///< every element is within its tolerance
};

struct OutputCheck {
    Tensor tensor = Tensor::dx;
    Distance ours;
    std::optional<Distance> foreign;

    bool holds() const { return ours.holds && (!foreign || foreign->holds); }
};

/// One entry per output of the spec, after a launch.
std::vector<OutputCheck> check_outputs(const Problem& problem,
                                       const PerTensor<std::optional<ForeignGradient>>& foreign);

}  // namespace normjit::cli
