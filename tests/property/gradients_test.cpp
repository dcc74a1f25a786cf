// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

TEST_CASE("gradients of random problems agree with the reference, and nothing else is written") {
    check_cases(2500, random_case, check_against_reference);
}

TEST_CASE("very long rows and very many rows are right") {
    check_cases(40, random_extreme_case, check_against_reference);
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
