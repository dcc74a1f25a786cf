// SPDX-License-Identifier: Apache-2.0
// Checks that the backward pass is the derivative of the forward pass, in f64: of L = sum(y * w) + sum(h * v), along a
// direction of all inputs at once, by central differences. The layers are those of real models: plain, with a
// residual stream and scaled rows, with a scale and shift per sample (adaLN), and heads (qk-norm).
#include "check.h"
#include "element.h"

#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

struct Layer {
    Case forward, backward;
};

Layer random_layer(Random& random) {
    const bool layernorm = random.chance(50), streams = random.chance(50);
    const char* per_slice[] = {"", " per_slice=gamma", " per_slice=gamma,beta"};
    const char* slices = random.chance(70) ? per_slice[random.between(0, layernorm ? 2 : 1)] : nullptr;
    const std::string shape =
        fmt::format("{} cols={} x=f64{}{} gamma_offset={} eps=0.01", layernorm ? "layernorm" : "rmsnorm",
                    random.between(2, 70), slices ? " slices=any" : "", slices ? slices : "", random.between(0, 1));
    const std::string scaled = streams && random.chance(50) ? " rowscale=f64" : "";
    Case drawn;
    drawn.target = *machine();
    drawn.rows = random.between(1, 9);
    drawn.slices = slices ? random.between(1, 7) : 1;
    Layer layer{drawn, drawn};
    layer.forward.spec = *parse_spec(shape + " pass=forward" + scaled + (streams ? " residual=f64" : ""));
    const char* sums = layernorm ? ",dgamma,dbeta" : ",dgamma";
    layer.backward.spec = *parse_spec(shape + " stats=recompute" + scaled + (streams ? " dresidual=f64" : "") +
                                      " out=dx,dresidual_in" + sums);
    for (Case* each : {&layer.forward, &layer.backward})
        each->schedule = random_legal_schedule(random, each->spec, each->target);
    return layer;
}

using Numbers = std::vector<double>;

Numbers normal(Random& random, size_t count, double mean = 0) {
    Numbers numbers(count);
    for (double& number : numbers) number = mean + random.real(-1, 1);
    return numbers;
}

double dot(const Numbers& a, const Numbers& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

PerTensor<Numbers> launch_on(const Case& a_case, const Kernel& kernel, const Inputs& inputs) {
    const Outputs outputs = run(a_case, kernel, inputs);
    REQUIRE_MESSAGE(outputs.wrong == "", outputs.wrong);
    PerTensor<Numbers> numbers;
    for (const Tensor tensor : all_tensors) {
        const auto& bytes = outputs.bytes[tensor];
        numbers[tensor] =
            reference::decode(DType::f64, bytes.data(), static_cast<int64_t>(bytes.size() / sizeof(double)));
    }
    return numbers;
}

/// The inputs of the forward pass and their gradients.
constexpr std::pair<Tensor, Tensor> input_gradients[] = {{Tensor::x, Tensor::dx},
                                                         {Tensor::residual, Tensor::dresidual_in},
                                                         {Tensor::gamma, Tensor::dgamma},
                                                         {Tensor::beta, Tensor::dbeta}};

void check(Random& random, const Layer& layer) {
    const Case &forward = layer.forward, &backward = layer.backward;
    INFO(to_text(forward), "\n", to_text(backward));
    const auto forward_kernel = make_kernel(forward, engine(1)), backward_kernel = make_kernel(backward, engine(1));
    REQUIRE_MESSAGE(forward_kernel.ok(), forward_kernel.status().message());
    REQUIRE_MESSAGE(backward_kernel.ok(), backward_kernel.status().message());
    Inputs at, along;
    for (const Tensor tensor : all_tensors) {
        if (!forward.spec.reads(tensor)) continue;
        at[tensor] = normal(random, elements(forward, tensor), tensor == Tensor::rowscale ? 1 : 0);
        along[tensor] = normal(random, at[tensor].size());
    }
    const PerTensor<Numbers> outputs = launch_on(forward, *forward_kernel, at);
    Inputs to;
    to[Tensor::x] = forward.spec.has(Tensor::h) ? outputs[Tensor::h] : at[Tensor::x];
    to[Tensor::dy] = normal(random, to[Tensor::x].size());
    if (backward.spec.has(Tensor::dresidual)) to[Tensor::dresidual] = normal(random, to[Tensor::x].size());
    for (const Tensor same : {Tensor::gamma, Tensor::rowscale}) to[same] = at[same];
    const PerTensor<Numbers> found = launch_on(backward, *backward_kernel, to);
    double slope = 0;
    for (const auto& [input, gradient] : input_gradients) {
        if (forward.spec.reads(input)) slope += dot(along[input], found[gradient]);
    }
    const auto loss = [&](double step) {
        Inputs there = at;
        for (const auto& [input, gradient] : input_gradients) {
            for (size_t i = 0; i < there[input].size(); ++i) there[input][i] += step * along[input][i];
        }
        const PerTensor<Numbers> got = launch_on(forward, *forward_kernel, there);
        return dot(got[Tensor::y], to[Tensor::dy]) + dot(got[Tensor::h], to[Tensor::dresidual]);
    };
    constexpr double step = 1e-5;
    const double expected = (loss(step) - loss(-step)) / (2 * step);
    CHECK(std::fabs(slope - expected) <= 1e-6 * (1 + std::fabs(expected)));
}

}  // namespace

TEST_CASE("the backward pass is the derivative of the forward pass") {
    if (!machine().ok()) {
        MESSAGE("skipped: ", machine().status().message());
        return;
    }
    Random random(seed());
    for (int64_t i = 0; i < rounds(300); ++i) check(random, random_layer(random));
}
