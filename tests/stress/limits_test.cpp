// SPDX-License-Identifier: Apache-2.0
// Checks the costs of many kernels: memory stays flat over any number of specs, and a full folder is as fast as an
// empty one. A long run (NORMJIT_STRESS_SECONDS=60) uses the numbers that the project promises: 100,000 specs, 50,000
// entries.
#include "cache/folder.h"
#include "stress.h"
#include "temporary_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

double seconds_of(const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Writes files as a long-running engine leaves them, with the names of other kernels in all of the 256 folders.
void fill(const std::string& folder, int count, const std::string& entry) {
    std::mt19937_64 random(1);
    for (int i = 0; i < count; ++i) {
        const std::string id = fmt::format("{:016x}{:016x}", random(), random());
        const std::string below = folder + "/" + id.substr(0, 2);
        std::filesystem::create_directories(below);
        std::filesystem::permissions(below, std::filesystem::perms::owner_all);
        write_text(below + "/" + id + "-none.kernel", entry);
    }
}

double median(std::vector<double> times) {
    std::ranges::sort(times);
    return times[times.size() / 2];
}

}  // namespace

TEST_CASE("memory stays flat over any number of specs") {
    if (keeps_freed_memory()) return;
    if (backends_here().front() != BackendChoice::x64) return;  // the others take too long
    EngineOptions options = plain_options();
    options.most_kernels = 1000;
    const Engine engine = *Engine::create(options);
    const int count = is_long() ? 100'000 : 6000;
    const Holdings before = holdings();
    const double seconds = seconds_of([&] {
        for (int i = 1; i <= count; ++i) {
            const auto kernel = engine.prepare(*parse_spec(fmt::format("rmsnorm cols={}", i)));
            REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        }
    });
    const Holdings after = holdings();
    MESSAGE(count, " specs, 1000 kernels at most: ", after.resident_bytes >> 20, " MiB resident, ", seconds, " s");
    CHECK(after.resident_bytes < int64_t{200} << 20);
    CHECK(after.mappings - before.mappings < 1200);  // the code of each kernel is a mapping
    CHECK(after.descriptors == before.descriptors);
}

TEST_CASE("a kernel is found in a full folder as fast as in an empty one") {
    const int count = is_long() ? 50'000 : 5000;
    const TemporaryFolder full, empty;
    EngineOptions options[2] = {plain_options(backends_here().front()), plain_options(backends_here().front())};
    options[0].cache.folder = empty / "cache";
    options[1].cache.folder = full / "cache";
    for (const EngineOptions& each : options) REQUIRE(Engine::create(each)->prepare(small_spec()).ok());
    const auto files = *cache::Folder(*options[1].cache.folder).files();
    fill(*options[1].cache.folder, count, read_text(*options[1].cache.folder + "/" + files[0].name));
    std::vector<double> times[2];
    for (int i = 0; i < 201; ++i) {
        for (size_t which = 0; which < 2; ++which) {  // in turn, because the machine may be busy
            const Engine engine = *Engine::create(options[which]);
            times[which].push_back(seconds_of([&] { REQUIRE(engine.prepare(small_spec()).ok()); }));
        }
    }
    const double ratio = median(times[1]) / median(times[0]);
    MESSAGE("found in ", 1e6 * median(times[0]), " us in an empty folder, in ", 1e6 * median(times[1]), " us among ",
            count, " entries: ", ratio, " times");
    CHECK(ratio < 1.5);
}
