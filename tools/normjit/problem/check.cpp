// SPDX-License-Identifier: Apache-2.0
// Checks that our outputs are within the error bound that the reference gives for correct arithmetic.
//
// A framework's way of computing is unknown. It has its own order of operations, so it may be off by 4 times the bound.
// If some type is narrower than the compute type, it may round intermediate results to that type, as PyTorch's CPU
// column sums do. This allows 4 spacings of the type, at the size of the element or of its row; for a column sum sqrt(M
// + 1) times as many, because M roundings go both ways (Higham and Mary, "A New Approach to Probabilistic Rounding
// Error Analysis", 2019).
#include "problem/check.h"

#include "command_line/console.h"
#include "element.h"
#include "reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

using reference::Gradient;

/// How far a gradient may exceed the error bound of the reference.
struct Allowance {
    double bound_factor = 1;
    double spacings = 0;  ///< allowed spacings of `narrowest`
    DType narrowest = DType::f32;
};

Allowance foreign_allowance(const Spec& spec, int64_t rows, Tensor tensor, DType type) {
    Allowance allowance{.bound_factor = 4, .spacings = 0, .narrowest = type};
    auto coarseness = [](DType each) { return reference::spacing(each, 1.0); };
    for (Tensor input : {Tensor::x, Tensor::dy, Tensor::residual, Tensor::gamma}) {
        if (!spec.has(input) || coarseness(spec.dtype(input)) <= coarseness(allowance.narrowest)) continue;
        allowance.narrowest = spec.dtype(input);
    }
    if (coarseness(allowance.narrowest) > coarseness(spec.compute())) {
        allowance.spacings = spec.is_matrix(tensor) ? 4 : 4 * std::sqrt(static_cast<double>(rows) + 1);
    }
    return allowance;
}

double root_mean_square(std::span<const Gradient> gradients) {
    double squares = 0;
    for (const Gradient& gradient : gradients) squares += gradient.value * gradient.value;
    return std::sqrt(squares / static_cast<double>(gradients.size()));
}

/// Adds one row of a matrix output, or the whole of any other output. `elements` have the distance's type.
void add_row(std::span<const Gradient> expected, const char* elements, const Allowance& allowance, Distance& distance) {
    double scale = root_mean_square(expected);
    for (size_t j = 0; j < expected.size(); ++j) {
        Gradient gradient = expected[j];
        double size = std::max(std::fabs(gradient.value), scale);
        gradient.error *= allowance.bound_factor;
        if (allowance.spacings > 0 && std::isfinite(size)) {
            gradient.error += allowance.spacings * reference::spacing(allowance.narrowest, size);
        }
        double value = reference::decode(distance.type, elements + j * size_of(distance.type));
        if (!reference::agrees(gradient, value, distance.type)) distance.holds = false;
        double off = std::fabs(value - gradient.value);
        if (!std::isfinite(gradient.error) || off == 0) continue;
        double spacing = reference::spacing(distance.type, size);
        double ulp = std::isfinite(off) ? off / spacing : std::numeric_limits<double>::infinity();
        if (ulp <= distance.ulp) continue;
        distance.ulp = ulp;
        // The limit covers the arithmetic and the rounding of the stored value after it.
        distance.allowed_ulp = (gradient.error + reference::spacing(distance.type, gradient.value) / 2) / spacing;
    }
}

/// `row` is the number of elements that share one scale in add_row().
Distance distance_of(const std::vector<Gradient>& expected, size_t row, DType type, const void* data,
                     const Allowance& allowance) {
    Distance distance;
    distance.type = type;
    distance.narrowest = allowance.spacings > 0 ? allowance.narrowest : type;
    const auto* bytes = static_cast<const char*>(data);
    for (size_t i = 0; i < expected.size(); i += row) {
        add_row(std::span(expected).subspan(i, row), bytes + i * size_of(type), allowance, distance);
    }
    return distance;
}

Status check_memory(const Problem& problem) {
    double needed = 0;
    for (Tensor tensor : all_tensors) {
        if (!problem.spec.has(tensor)) continue;
        needed += static_cast<double>(problem.elements(tensor)) *
                  (problem.spec.writes(tensor) ? sizeof(Gradient) : sizeof(double));
    }
    return check_usable_memory("--check takes", needed);
}

}  // namespace

Expected<std::vector<OutputCheck>> check_outputs(const Problem& problem,
                                                 const PerTensor<std::optional<ForeignGradient>>& foreign) {
    const Spec& spec = problem.spec;
    if (Status status = check_memory(problem); !status.ok()) return status;
    const reference::Gradients expected = reference::compute(spec, problem.batch, problem.inputs());
    std::vector<OutputCheck> checks;
    for (Tensor tensor : all_tensors) {
        if (!spec.writes(tensor)) continue;
        OutputCheck& check = checks.emplace_back();
        check.name = spec.name(tensor);
        const auto row = static_cast<size_t>(spec.axes(tensor).column ? spec.axes(tensor).width(spec.cols)
                                                                      : problem.elements(tensor));
        check.ours = distance_of(expected[tensor], row, spec.dtype(tensor), problem.tensors[tensor].data(), {});
        if (const auto& gradient = foreign[tensor]) {
            check.foreign = distance_of(expected[tensor], row, gradient->type, gradient->data.data(),
                                        foreign_allowance(spec, problem.batch.all_rows(), tensor, gradient->type));
        }
    }
    return checks;
}

}  // namespace normjit::cli
