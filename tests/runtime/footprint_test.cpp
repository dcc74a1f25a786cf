// SPDX-License-Identifier: Apache-2.0
// What an engine with many kernels takes of the machine.
#include "normjit/engine.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

using namespace normjit;

namespace {

int64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    int64_t all = 0, resident = 0;
    statm >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

/// Sanitizers keep freed memory for a while.
constexpr bool keeps_freed_memory() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

}  // namespace

TEST_CASE("thousands of kernels take the memory of their code") {
    if (keeps_freed_memory()) return;
    const auto engine = Engine::create({.threads = 1, .cache = {.folder = "", .packs = std::vector<std::string>()}});
    REQUIRE(engine.ok());
    const auto backend = backend_of(engine->target());
    REQUIRE(backend.ok());
    if (*backend != "x64") return;  // others take too long
    const int64_t before = resident_bytes();
    REQUIRE(before > 0);
    for (int cols = 1; cols <= 4000; ++cols)
        REQUIRE(engine->prepare(*parse_spec("rmsnorm cols=" + std::to_string(cols))).ok());
    CHECK(resident_bytes() - before < int64_t{150} << 20);
}
