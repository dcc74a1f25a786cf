// SPDX-License-Identifier: Apache-2.0
// Are the outputs right? Those of a launch, and those that a framework computed, against double precision.
#pragma once

#include "problem.h"

#include "normjit/dtype.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <optional>
#include <vector>

namespace normjit::cli {

/// A gradient from elsewhere, as many elements as the problem's own.
struct ForeignGradient {
    DType type = DType::f32;
    Buffer data;
};

/// How far a gradient is from the double reference, at the element where that is furthest. The unit, ulp, is the
/// spacing of the gradient's type there; elements smaller than the root mean square of their row (of all columns, for a
/// column output) are measured in the spacing at that, or one lucky cancellation would rule the result.
struct Distance {
    DType type = DType::f32;
    DType narrowest = DType::f32;  ///< of the types that its computation may have rounded to
    double ulp = 0;
    double allowed_ulp = 0.5;
    bool holds = true;  ///< every element is as close as it has to be
};

struct OutputCheck {
    Tensor tensor = Tensor::dx;
    Distance ours;
    std::optional<Distance> foreign;

    bool holds() const { return ours.holds && (!foreign || foreign->holds); }
};

/// One entry per output of the spec, after a launch. Takes about 50 bytes of memory per element.
Expected<std::vector<OutputCheck>> check_outputs(const Problem& problem,
                                                 const PerTensor<std::optional<ForeignGradient>>& foreign);

}  // namespace normjit::cli
