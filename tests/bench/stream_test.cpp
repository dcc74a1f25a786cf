// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include "measure.h"
#include "support/aligned_memory.h"
#include "team.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::bench;

namespace {

/// Returns memory at a cache line, filled with `value`.
std::unique_ptr<unsigned char, Free> memory(int64_t bytes, int value) {
    std::unique_ptr<unsigned char, Free> block(static_cast<unsigned char*>(allocate_aligned(64, bytes).release()));
    std::fill_n(block.get(), bytes, static_cast<unsigned char>(value));
    return block;
}

}  // namespace

TEST_CASE("team: every index and every element once") {
    for (int threads : {1, 2, 5}) {
        Team team(threads);
        CHECK(team.size() == threads);
        for (int round = 0; round < 100; ++round) {
            std::vector<int> calls(static_cast<size_t>(threads));
            team.run([&](int i) { ++calls[static_cast<size_t>(i)]; });
            CHECK(calls == std::vector<int>(static_cast<size_t>(threads), 1));
        }
        for (int64_t count : {0, 1, 3, 1000}) {
            std::vector<int> seen(static_cast<size_t>(count));
            team.run_ranges(count, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
            });
            CHECK(seen == std::vector<int>(static_cast<size_t>(count), 1));
        }
    }
}

TEST_CASE("stream: writes every whole line of the result, and nothing after it") {
    constexpr int64_t lines = 5003;
    for (int reads : {1, 2, 3}) {
        for (const StreamMethod& method : stream_methods()) {
            Team team(3);
            auto a = memory(lines * 64, 1), b = memory(lines * 128, 2), c = memory(lines * 64, 4);
            auto out = memory((lines + 1) * 64, 99);
            Traffic traffic;
            traffic.reads = {{a.get(), lines * 64}, {b.get(), lines * 64}, {c.get(), lines * 64}};
            traffic.reads.resize(static_cast<size_t>(reads));
            traffic.writes = {{out.get(), lines * 64 + 17}};
            stream(team, traffic, method);
            CHECK(out.get()[0] == (1 << reads) - 1);
            CHECK(out.get()[lines * 64 - 1] == (1 << reads) - 1);
            CHECK(out.get()[lines * 64] == 99);
            traffic.reads[0] = {b.get(), lines * 128};  // now of another type
            stream(team, traffic, method);
            CHECK(out.get()[0] != 99);
            CHECK(out.get()[lines * 64] == 99);
            traffic.writes.clear();
            stream(team, traffic, method);
        }
    }
}

TEST_CASE("measure: the last action is a launch, and errors are returned") {
    Team team(2);
    auto data = memory(1 << 16, 1);
    Traffic traffic;
    traffic.reads = {{data.get(), 1 << 16}};
    int launches = 0, passes = 0;
    const NextTraffic next = [&]() -> const Traffic& { return ++passes, traffic; };
    auto result = measure(team, next,
                          [&] {
                              ++launches;
                              return Status();
                          },
                          {.seconds = 0, .min_samples = 3, .max_samples = 3});
    REQUIRE(result.ok());
    CHECK(result->samples == 3);
    CHECK(result->traffic_bytes == 1 << 16);
    CHECK(launches > 3);
    CHECK((passes > 3 || stream_methods().empty()));
    auto broken = measure(team, next, [] { return failed("no"); });
    CHECK(broken.status().message() == "no");
}

TEST_CASE("measure: median and quantiles") {
    std::vector<double> seconds = {5, 1, 4, 2, 3};
    Sample sample = sample_of(seconds);
    CHECK(sample.median == 3);
    CHECK(sample.p20 == 1);
    CHECK(sample.p80 == 4);
    seconds.clear();
    CHECK(sample_of(seconds).median < 0);
}
