// SPDX-License-Identifier: Apache-2.0
#include "case.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

TEST_CASE("the line of a case replays it") {
    if (!machine().ok()) return;
    Random random(seed());
    for (int64_t i = 0; i < rounds(300); ++i) {
        const Case drawn = random_case(random);
        const auto parsed = parse_case(to_text(drawn));
        REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
        CHECK(parsed->spec == drawn.spec);
        CHECK(to_text(*parsed) == to_text(drawn));
    }
}
