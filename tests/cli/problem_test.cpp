// SPDX-License-Identifier: Apache-2.0
#include "problem/problem.h"

#include "normjit/engine.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::cli;

TEST_CASE("a problem's tensors have the sizes of their axes, those that slices share as well") {
    const auto engine = Engine::create({.threads = 1});
    if (!engine.ok()) return;
    bench::Team team{1};
    for (const char* text : {"qk_norm_rope slices=4 rows=29 cols=96 x=bf16 gamma=bf16",
                             "layernorm slices=3 rows=5 cols=40 x=bf16 per_slice=gamma,beta"}) {
        const auto kernel = engine->prepare(*parse_spec(text));
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        const Batch batch{5, 3};
        const auto problem = allocate_problem(*kernel, batch, team);
        REQUIRE(problem.ok());
        for (const Tensor tensor : all_tensors) {
            if (problem->spec.has(tensor))
                CHECK(problem->tensors[tensor].bytes() == bytes_of(problem->spec, tensor, batch));
        }
    }
}
