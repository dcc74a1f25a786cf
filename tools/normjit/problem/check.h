// SPDX-License-Identifier: Apache-2.0
// Checks outputs against double precision, both outputs of a launch and outputs that a framework computed.
#pragma once

#include "problem/problem.h"

#include "normjit/dtype.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <optional>
#include <string>
#include <vector>

namespace normjit::cli {

/// A gradient from elsewhere, with as many elements as the problem's own.
struct ForeignGradient {
    DType type = DType::f32;
    Buffer data;
};

/// How far a gradient is from the double reference, at the element where the distance is largest. The unit, ulp, is the
/// spacing of the gradient's type at that element. For elements smaller than the root mean square of their row (for a
/// column output, of all columns) it is the spacing at the root mean square, because otherwise a single cancellation
/// would dominate the result.
struct Distance {
    DType type = DType::f32;
    DType narrowest = DType::f32;  ///< the narrowest of the types to which its computation may have rounded
    double ulp = 0;
    double allowed_ulp = 0.5;
    bool holds = true;  ///< every element is as close as it must be
};

struct OutputCheck {
    std::string name;  ///< the name of the output
    Distance ours;
    std::optional<Distance> foreign;

    bool holds() const { return ours.holds && (!foreign || foreign->holds); }
};

/// Returns one entry per output of the spec, after a launch. Takes about 50 bytes of memory per element.
Expected<std::vector<OutputCheck>> check_outputs(const Problem& problem,
                                                 const PerTensor<std::optional<ForeignGradient>>& foreign);

}  // namespace normjit::cli
