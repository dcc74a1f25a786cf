// SPDX-License-Identifier: Apache-2.0
// Tests [N] arithmetic after the final reduce: formulas that no spec requests yet, through every back end.
#include "backend/backend.h"
#include "check.h"
#include "device_image.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "reference.h"
#include "support/try.h"

#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Returns the formula in which dgamma is replaced by dgamma times gamma plus 3.
Expected<ir::Function> changed_formula(const Spec& spec, const Target& target) {
    NORMJIT_TRY(ir::Function function, passes::run_pipeline(frontend::build(spec), target));
    const auto output = std::ranges::find(function.outputs, Tensor::dgamma, &ir::Output::tensor);
    const ir::ValueId sum = output->value;
    const auto add = [&](ir::Value value) {
        function.values.push_back(std::move(value));
        return function.size() - 1;
    };
    const auto is_gamma = [](const ir::Value& v) { return v.op == ir::Op::input && v.tensor == Tensor::gamma; };
    const auto found = std::ranges::find_if(function.values, is_gamma);
    const auto gamma = static_cast<ir::ValueId>(found - function.values.begin());
    function[sum].name = "dgamma_sum";
    const ir::ValueId product = add({.op = ir::Op::mul, .shape = ir::Shape::cols, .operands = {sum, gamma}});
    const ir::ValueId three = add({.op = ir::Op::constant, .constant = 3});
    output->value = add({.op = ir::Op::add, .shape = ir::Shape::cols, .operands = {product, three}, .name = "dgamma"});
    NORMJIT_RETURN_IF_ERROR(ir::verify(function));
    return passes::assign_sweeps(function);
}

Expected<Kernel> changed_kernel(const Case& a_case) {
    NORMJIT_TRY(const backend::Backend* backend, backend::find(a_case.target));
    NORMJIT_TRY(ir::Function function, changed_formula(a_case.spec, a_case.target));
    NORMJIT_TRY(const plan::Plan plan, plan::build(a_case.spec, a_case.schedule, a_case.target, std::move(function)));
    NORMJIT_RETURN_IF_ERROR(backend->legal(plan));
    NORMJIT_TRY(const Artifact artifact, backend->emit(plan));
    return engine(a_case.threads).load(artifact);
}

std::string check_changed(const Case& a_case, int64_t& compared) {
    // A case that is being reduced may have lost these tensors.
    if (!a_case.spec.has(Tensor::dgamma) || !a_case.spec.reads(Tensor::gamma)) return {};
    const auto kernel = changed_kernel(a_case);
    // Its schedule was drawn for the spec's own formula, so this one may need too many registers.
    if (!kernel.ok()) return kernel.status().code() == Code::invalid_argument ? "" : kernel.status().message();
    const Layout layout = make_layout(a_case);
    const Inputs inputs = inputs_in_layout(a_case, layout);
    const Problem problem(a_case, kernel->artifact().geometry, layout, inputs);
    if (const std::string wrong = launch(*kernel, problem); !wrong.empty()) return wrong;
    const auto gradients = reference::compute(a_case.spec, a_case.rows, inputs)[Tensor::dgamma];
    const DType type = a_case.spec.dtype(Tensor::dgamma);
    const double unit = a_case.spec.compute() == DType::f64 ? 0x1p-51 : 0x1p-22;
    const auto got = problem.numbers(Tensor::dgamma);
    for (size_t j = 0; j < got.size(); ++j) {
        const double gamma = inputs[Tensor::gamma][j], product = gradients[j].value * gamma;
        reference::Gradient expected{product + 3, gradients[j].error * std::fabs(gamma)};
        expected.error += unit * (std::fabs(product) + 3);
        if (!reference::agrees(expected, got[j], type))
            return fmt::format("dgamma[{}] is {}, not {} +- {}", j, got[j], expected.value, expected.error);
    }
    ++compared;
    return {};
}

}  // namespace

TEST_CASE("column outputs apply the formula to finished sums") {
    const auto draw = [](Random& random) {
        Case drawn = random_plain_case(random);
        const auto suits = [&] {
            return drawn.spec.has(Tensor::dgamma) && drawn.spec.reads(Tensor::gamma) &&
                   !drawn.spec.accumulates(Tensor::dgamma);
        };
        while (!suits()) drawn = random_plain_case(random);
        return drawn;
    };
    if (!machine().ok()) return;
    int64_t compared = 0;
    check_cases(300, draw, [&](const Case& a_case) { return check_changed(a_case, compared); });
    if (std::getenv("NORMJIT_TEST_CASE") == nullptr) CHECK(compared > rounds(300) / 2);
}
