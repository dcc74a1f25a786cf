// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "random_formula.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Draws a case of a formula; formulas without a gradient that can be derived are drawn again.
Case formula_case(Random& random) {
    for (;;) {
        const auto spec = random_formula_spec(random);
        if (!spec.ok()) {
            CAPTURE(spec.status().message());
            REQUIRE(spec.status().code() == Code::invalid_argument);
            continue;
        }
        return random_case_of(random, *spec, random_batch(random, *spec));
    }
}

}  // namespace

TEST_CASE("formulas and their derived gradients agree with the reference, and nothing else is written") {
    check_cases(500, formula_case, check_against_reference);
}
