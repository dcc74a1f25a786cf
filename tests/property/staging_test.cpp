// SPDX-License-Identifier: Apache-2.0
// Tests dx, or y, if it is stored past the caches although its rows do not start at cache lines.
#include "check.h"
#include "device_image.h"

#include <algorithm>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

Tensor result(const Spec& spec) { return spec.pass == Pass::forward ? Tensor::y : Tensor::dx; }

/// Places rows without gaps, rows with gaps that all start at lines, or other rows with gaps. If the result uses the
/// memory of an input, the input moves as well.
void move_result(Layout& layout, Random& random, const Spec& spec) {
    const int64_t line = 64 / static_cast<int64_t>(size_of(spec.dtype(result(spec))));
    Layout::Place& place = layout.places[result(spec)];
    place.shift = random.between(0, 2 * line);
    place.stride = random.chance(40) ? spec.cols : spec.cols + random.between(1, 2 * line);
    if (random.chance(50)) {
        place.edge = GuardedMemory::Edge::front;  // the start of a page is also the start of a cache line
        place.shift -= place.shift % line;
        place.stride = (place.stride + line - 1) / line * line;
    }
    if (const auto under = layout.under[result(spec)]) layout.places[*under] = place;
}

/// Counts launches of code that can stage rows, by where the rows of the result start.
struct Launches {
    int64_t all = 0, without_gaps = 0, on_lines_with_gaps = 0;
};

void count(Launches& launches, const Kernel& kernel, const Problem& problem) {
    ++launches.all;
    if (kernel.artifact().find("rows_staged") == nullptr) return;
    const Spec& spec = problem.drawn().spec;
    const Argument& argument = problem.arguments()[result(spec)];
    const int64_t stride_bytes = argument.row_stride * static_cast<int64_t>(size_of(argument.dtype));
    const bool starts_on_lines = reinterpret_cast<uintptr_t>(argument.data) % 64 == 0 && stride_bytes % 64 == 0;
    launches.without_gaps += argument.row_stride == spec.cols;
    launches.on_lines_with_gaps += argument.row_stride != spec.cols && starts_on_lines;
}

Outputs run(const Problem& problem, const Kernel& kernel) {
    Outputs outputs{.wrong = launch(kernel, problem), .bytes = {}};
    const Tensor tensor = result(problem.drawn().spec);
    outputs.bytes[tensor] = problem.bytes(tensor);
    return outputs;
}

/// Checks that the bits are the same as if stored through the caches, whatever else is in the lines at both ends of a
/// row.
std::string check_same_result(const Case& a_case, Launches& launches) {
    Layout layout = make_layout(a_case);
    Random random(a_case.layout + 1);
    move_result(layout, random, a_case.spec);
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

TEST_CASE("dx and y stored past the caches have the same bits, wherever their rows start") {
    if (on_gpu()) return;
    Launches launches;
    const auto draw = [](Random& random) {
        Case drawn = random_plain_case(random);
        while (!drawn.spec.has(result(drawn.spec))) drawn = random_plain_case(random);
        std::get<CpuSchedule>(drawn.schedule.device).nontemporal_kb = 0;
        return drawn;
    };
    check_cases(500, draw, [&](const Case& a_case) { return check_same_result(a_case, launches); });
    if (!machine().ok() || machine()->isa != Isa::x86_64_avx512) return;
    CHECK(launches.without_gaps > launches.all / 20);
    CHECK(launches.on_lines_with_gaps > launches.all / 20);
}
