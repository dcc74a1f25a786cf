// SPDX-License-Identifier: Apache-2.0
// Checks how much memory and how many threads an engine with many kernels takes.
#include "process.h"

#include "normjit/engine.h"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using test::keeps_freed_memory;
using test::resident_bytes;

TEST_CASE("thousands of kernels take the memory of their code") {
    if (keeps_freed_memory()) return;
    const auto engine = Engine::create({.threads = 1, .cache = {.folder = "", .packs = std::vector<std::string>()}});
    REQUIRE(engine.ok());
    const auto backend = backend_of(engine->target());
    REQUIRE(backend.ok());
    if (*backend != "x64") return;  // the others take too long
    const int64_t before = resident_bytes();
    REQUIRE(before > 0);
    for (int cols = 1; cols <= 4000; ++cols)
        REQUIRE(engine->prepare(*parse_spec("rmsnorm cols=" + std::to_string(cols))).ok());
    CHECK(resident_bytes() - before < int64_t{150} << 20);
}
