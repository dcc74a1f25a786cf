// SPDX-License-Identifier: Apache-2.0
// Every n-th allocation of a prepare fails: it says so, and the next one works.
#include "allocation.h"
#include "fake_device.h"
#include "temporary_folder.h"

#include <new>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

Spec spec(int64_t cols) { return *parse_spec("rmsnorm out=dx cols=" + std::to_string(cols)); }

}  // namespace

TEST_CASE("a background prepare that lacks memory leaves nothing pending") {
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    const Engine engine = make_engine(device, {});
    const PrepareOptions background{.on_miss = OnMiss::background};
    CHECK(engine.prepare(spec(999)).ok());
    int64_t points = 0;
    for (bool reached = true; reached; ++points) {
        const Spec wanted = spec(1 + points);
        try {
            const FailingAllocation failing(points);
            const auto kernel = engine.prepare(wanted, background);
            reached = FailingAllocation::was_reached();
        } catch (const std::bad_alloc&) {
        }
        auto kernel = engine.prepare(wanted, background);
        for (int wait = 0; wait < 5000 && kernel.status().code() == Code::pending; ++wait) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            kernel = engine.prepare(wanted, background);
        }
        REQUIRE_MESSAGE(kernel.ok(), "after allocation ", points, ": ", kernel.status().message());
    }
    MESSAGE(points, " allocations");
    CHECK(points > 5);
}

TEST_CASE("a prepare that finds its kernel in the folder survives every lack of memory") {
    const TemporaryFolder folder;
    const EngineOptions options{.cache = {.folder = folder.path(), .bytes = 1 << 20, .packs = {}, .everything = true}};
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    CHECK(make_engine(device, options).prepare(spec(1)).ok());
    int64_t points = 0;
    for (bool reached = true; reached; ++points) {
        const Engine engine = make_engine(device, options);
        try {
            const FailingAllocation failing(points);
            const auto kernel = engine.prepare(spec(1));
            reached = FailingAllocation::was_reached();
        } catch (const std::bad_alloc&) {
        }
        REQUIRE(engine.prepare(spec(1)).ok());
    }
    MESSAGE(points, " allocations");
    CHECK(points > 50);
}
