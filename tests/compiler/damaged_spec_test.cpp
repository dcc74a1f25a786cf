// SPDX-License-Identifier: Apache-2.0
#include "mutate.h"
#include "random_spec.h"

#include "normjit/spec.h"

#include <cstdint>
#include <string>

#include <doctest/doctest.h>

namespace normjit {

TEST_CASE("damaged text gives a valid spec or one printable line") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(20000);
    for (int64_t i = 0; i < count; ++i) {
        const std::string text = test::mutate(random, to_text(test::random_spec(random)));
        CAPTURE(text);
        const auto spec = parse_spec(text);
        if (spec) {
            REQUIRE(*parse_spec(to_text(*spec)) == *spec);
            continue;
        }
        REQUIRE(test::is_printable_line(spec.status().message()));
        REQUIRE(spec.status().message().starts_with("spec: "));
    }
}

TEST_CASE("any bytes give a value or an error") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(5000);
    for (int64_t i = 0; i < count; ++i) {
        std::string text = random.chance(50) ? "layernorm cols=1 " : "";
        for (int64_t n = random.between(0, 80); n > 0; --n) text += static_cast<char>(random.bits());
        REQUIRE(test::is_printable_line(parse_spec(text).status().message()));
    }
}

}  // namespace normjit
