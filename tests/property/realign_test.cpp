// SPDX-License-Identifier: Apache-2.0
// dx past the caches, where its rows do not start on lines.
#include "check.h"
#include "device_image.h"

#include <algorithm>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Rows one behind the other; rows with gaps that all start on lines; other rows with gaps. Of x, dy or dresidual, too,
/// where dx takes their memory over.
void move_dx(Layout& layout, Random& random, const Spec& spec) {
    const int64_t line = 64 / static_cast<int64_t>(size_of(*spec.dtypes[Tensor::dx]));
    Layout::Place& dx = layout.places[Tensor::dx];
    dx.shift = random.between(0, 2 * line);
    dx.stride = random.chance(40) ? spec.cols : spec.cols + random.between(1, 2 * line);
    if (random.chance(50)) {
        dx.edge = GuardedMemory::Edge::front;  // of a page
        dx.shift -= dx.shift % line;
        dx.stride = (dx.stride + line - 1) / line * line;
    }
    if (const auto under = layout.under[Tensor::dx]) layout.places[*under] = dx;
}

/// Launches of code that can realign, by where the rows of dx start.
struct Launches {
    int64_t all = 0, without_gaps = 0, on_lines_with_gaps = 0;
};

void count(Launches& launches, const Kernel& kernel, const Problem& problem) {
    ++launches.all;
    if (kernel.artifact().find("rows_realign") == nullptr) return;
    const Spec& spec = problem.drawn().spec;
    const Argument& dx = problem.arguments()[Tensor::dx];
    const int64_t stride_bytes = dx.row_stride * static_cast<int64_t>(size_of(*spec.dtypes[Tensor::dx]));
    const bool starts_on_lines = reinterpret_cast<uintptr_t>(dx.data) % 64 == 0 && stride_bytes % 64 == 0;
    launches.without_gaps += dx.row_stride == spec.cols;
    launches.on_lines_with_gaps += dx.row_stride != spec.cols && starts_on_lines;
}

Outputs run(const Problem& problem, const Kernel& kernel) {
    Outputs outputs{.wrong = launch(kernel, problem), .bytes = {}};
    outputs.bytes[Tensor::dx] = problem.bytes(Tensor::dx);
    return outputs;
}

/// The same bits as through the caches, whoever else's bytes stand in the lines where rows start and end.
std::string check_same_dx(const Case& a_case, Launches& launches) {
    Layout layout = make_layout(a_case);
    Random random(a_case.layout + 1);
    move_dx(layout, random, a_case.spec);
    const Inputs inputs = inputs_in_layout(a_case, layout);
    Case through_caches = a_case;
    std::get<CpuSchedule>(through_caches.schedule.device).nontemporal_kb = -1;
    const auto past = make_kernel(a_case, engine(a_case.threads));
    const auto through = make_kernel(through_caches, engine(a_case.threads));
    for (const auto* kernel : {&past, &through}) {
        if (!kernel->ok()) return kernel->status().message();
    }
    const Problem problem(a_case, past->artifact().geometry, layout, inputs);
    count(launches, *past, problem);
    const Problem again(through_caches, through->artifact().geometry, layout, inputs);
    return difference(run(problem, *past), run(again, *through));
}

}  // namespace

TEST_CASE("dx past the caches has the same bits, wherever its rows start") {
    if (on_gpu()) return;
    Launches launches;
    const auto draw = [](Random& random) {
        Case drawn = random_case(random);
        while (!drawn.spec.has(Tensor::dx)) drawn = random_case(random);
        std::get<CpuSchedule>(drawn.schedule.device).nontemporal_kb = 0;
        return drawn;
    };
    check_cases(500, draw, [&](const Case& a_case) { return check_same_dx(a_case, launches); });
    if (!machine().ok() || machine()->isa != Isa::x86_64_avx512) return;
    CHECK(launches.without_gaps > launches.all / 20);
    CHECK(launches.on_lines_with_gaps > launches.all / 20);
}
