// SPDX-License-Identifier: Apache-2.0
// More matrices than a processor has registers for their pointers.
#include "check.h"
#include "device_image.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

TEST_CASE("pointers without a register are kept in memory") {
    if (on_gpu()) return;
    const Spec spec = *parse_spec(
        "layernorm cols=203 x=bf16 gamma=f32 beta=f32 dresidual=bf16 source=y dresidual_in=f32 "
        "out=dx,dresidual_in,dgamma,dbeta");
    const auto draw = [&](Random& random) {
        Case drawn = random_plain_case(random);
        drawn.spec = spec;
        drawn.rows = random.between(0, 40);
        drawn.schedule = *parse_schedule(random.pick({
            "cpu strip=1 unroll=1 prefetch=2 cache_elements=1",
            "cpu strip=1 unroll=1 prefetch=2 cache_elements=1 nontemporal_kb=0",
            "cpu strip=1 unroll=1 prefetch=2 split_rows=100 column_ranges=3",
            "cpu strip=1 unroll=1 overlap=1",
        }));
        std::get<CpuSchedule>(drawn.schedule.device).row_block = static_cast<int>(random.between(1, 4));
        if (!legality(spec, drawn.schedule, drawn.target).ok()) drawn.schedule = heuristic(spec, drawn.target);
        return drawn;
    };
    check_cases(40, draw, check_against_reference);
}
