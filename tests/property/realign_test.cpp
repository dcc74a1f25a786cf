// SPDX-License-Identifier: Apache-2.0
// dx past the caches, where its rows do not start on lines.
#include "check.h"
#include "device_image.h"

#include <algorithm>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Of x, dy or dresidual, too, where dx takes their memory over.
void move_dx(Layout& layout, Random& random, const Spec& spec) {
    const int64_t line = 64 / static_cast<int64_t>(size_of(*spec.dtypes[Tensor::dx]));
    Layout::Place& dx = layout.places[Tensor::dx];
    dx.shift = random.between(0, 2 * line);
    dx.stride = random.chance(70) ? spec.cols : spec.cols + random.between(1, 2 * line);
    if (layout.under_dx) layout.places[*layout.under_dx] = dx;
}

Outputs run_in(const Layout& layout, const Case& a_case, const Kernel& kernel, const Inputs& inputs) {
    const Problem problem(a_case, kernel.artifact().geometry, layout, inputs);
    Outputs outputs{.wrong = launch(kernel, problem), .bytes = {}};
    outputs.bytes[Tensor::dx] = problem.bytes(Tensor::dx);
    return outputs;
}

/// The same bits as through the caches, whoever else's bytes stand in the lines where rows start and end.
std::string check_same_dx(const Case& a_case) {
    Layout layout = make_layout(a_case);
    Random random(a_case.layout + 1);
    move_dx(layout, random, a_case.spec);
    const Inputs inputs = inputs_in_layout(a_case, layout);
    Case through_caches = a_case;
    std::get<CpuSchedule>(through_caches.schedule.device).stream_kb = -1;
    const auto past = make_kernel(a_case, engine(a_case.threads));
    const auto through = make_kernel(through_caches, engine(a_case.threads));
    for (const auto* kernel : {&past, &through}) {
        if (!kernel->ok()) return kernel->status().message();
    }
    return difference(run_in(layout, a_case, *past, inputs), run_in(layout, through_caches, *through, inputs));
}

}  // namespace

TEST_CASE("dx past the caches has the same bits, wherever its rows start") {
    if (on_gpu()) return;
    int64_t realigned = 0, launches = 0;
    const auto draw = [](Random& random) {
        Case drawn = random_case(random);
        while (!drawn.spec.has(Tensor::dx)) drawn = random_case(random);
        std::get<CpuSchedule>(drawn.schedule.device).stream_kb = 0;
        return drawn;
    };
    check_cases(500, draw, [&](const Case& a_case) {
        const auto kernel = make_kernel(a_case, engine(1));
        realigned += kernel.ok() && kernel->artifact().find("rows_realign") != nullptr;
        ++launches;
        return check_same_dx(a_case);
    });
    if (machine().ok() && machine()->isa == Isa::x86_64_avx512) CHECK(realigned > launches / 10);
}
