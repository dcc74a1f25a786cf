// SPDX-License-Identifier: Apache-2.0
// Column sums on CPUs are as exact for many rows as for few, because they are summed in stages, so that their error
// does not grow with the rows. A GPU sums hundreds of short row groups, which is exact enough unless the workspace
// allows only a few.
#include "check.h"
#include "element.h"
#include "reference.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// The largest relative error in the L2 norm. A single sum over 60000 rows has an error of 5e-6.
constexpr double allowed = 2.1e-7;

Case long_case(Random& random) {
    Case drawn = random_plain_case(random);
    const int64_t rows = random.pick({5'000, 20'000, 60'000}), cols = random.between(100, 300);
    drawn.spec = *parse_spec(
        fmt::format("layernorm cols={} x={} dy=f32 dgamma=f32 dbeta=f32", cols, random.chance(50) ? "bf16" : "f32"));
    drawn.rows = rows;
    drawn.schedule = random_legal_schedule(random, drawn.spec, drawn.target);
    drawn.layout = 0;
    return drawn;
}

Inputs normal_inputs(const Case& a_case) {
    Random random(a_case.data);
    Inputs inputs;
    for (Tensor tensor : all_tensors) {
        if (!a_case.spec.reads(tensor)) continue;
        inputs[tensor].resize(elements(a_case, tensor), 1.0);
        const auto normal = [&] {  // the sum of three uniform numbers from 0 to 2 is nearly normal
            double total = -3;
            for (int i = 0; i < 3; ++i) total += static_cast<double>(random.bits() >> 11) * 0x1p-52;
            return reference::round_to(a_case.spec.dtype(tensor), total);
        };
        if (is_matrix(tensor)) std::ranges::generate(inputs[tensor], normal);
        if (tensor == Tensor::mean) std::ranges::fill(inputs[tensor], 0.0);
    }
    return inputs;
}

std::string check_sums(const Case& a_case, const Inputs& inputs, const reference::Gradients& expected, int64_t groups) {
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    Layout layout = make_layout(a_case);
    layout.groups = groups;
    const Problem problem(a_case, kernel->artifact().geometry, layout, inputs);
    if (const std::string wrong = launch(*kernel, problem); !wrong.empty()) return wrong;
    for (const Tensor tensor : {Tensor::dgamma, Tensor::dbeta}) {
        if (!a_case.spec.writes(tensor)) continue;
        const std::vector<double> got = problem.numbers(tensor);
        double error = 0, size = 0;
        for (size_t i = 0; i < got.size(); ++i) {
            const double value = expected[tensor][i].value;
            error += (got[i] - value) * (got[i] - value);
            size += value * value;
        }
        const double relative = std::sqrt(error / size);
        if (!(relative <= allowed))
            return fmt::format("{} is off by {:.3g}, {} groups", name(tensor), relative, groups);
    }
    return {};
}

}  // namespace

TEST_CASE("on CPUs the error of column sums does not grow with the rows") {
    check_cases(12, long_case, [](const Case& a_case) {
        if (a_case.rows == 0 || a_case.target.is_cuda()) return std::string();
        const Inputs inputs = normal_inputs(a_case);
        const auto expected = reference::compute(a_case.spec, a_case.rows, inputs);
        for (const int64_t groups : {int64_t{1}, a_case.schedule.row_groups}) {
            if (const std::string wrong = check_sums(a_case, inputs, expected, groups); !wrong.empty()) return wrong;
        }
        return std::string();
    });
}
