// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Draws a problem with few rows per slice, which start anywhere in a vector, with sums over each slice and over all
/// slices.
Case few_rows_case(Random& random) {
    const auto rows = random.between(1, 4), slices = random.between(1, 40), cols = 2 * random.between(20, 700) + 1;
    const Spec spec =
        *parse_spec("layernorm slices=" + random.pick({std::string("any"), std::to_string(slices)}) +
                    " cols=" + std::to_string(cols) + random.pick({" x=f16", " x=bf16", " x=f32"}) +
                    random.pick({" per_slice=gamma", " per_slice=beta", " per_slice=gamma accumulate=dbeta"}));
    return random_case_of(random, spec, {rows, slices});
}

}  // namespace

TEST_CASE("gradients of random problems agree with the reference, and nothing else is written") {
    check_cases(2500, random_case, check_against_reference);
}

TEST_CASE("very long rows and very many rows are right") {
    check_cases(40, random_extreme_case, check_against_reference);
}

TEST_CASE("sums of each slice and of all are right with few rows that start anywhere") {
    check_cases(150, few_rows_case, check_against_reference);
}

TEST_CASE("every legal schedule gives gradients that agree with the reference") {
    const auto check = [](const Case& a_case) {
        Random random(a_case.data);
        Case other = a_case;
        for (int i = 0; i < 8; ++i) {
            if (const std::string wrong = check_against_reference(other); !wrong.empty()) {
                return to_text(other.schedule) + ": " + wrong;
            }
            other.schedule = random_legal_schedule(random, other.spec, other.target);
        }
        return std::string();
    };
    check_cases(100, random_case, check);
}
