// SPDX-License-Identifier: Apache-2.0
#include "normjit/schedule.h"

#include "mutate.h"
#include "random_spec.h"

#include <doctest/doctest.h>

namespace normjit {

namespace {

std::string read_schedule(std::string_view text) {
    const auto schedule = parse_schedule(text);
    return schedule ? to_text(*schedule) : schedule.status().message();
}

}  // namespace

TEST_CASE("a text becomes the schedule that it describes") {
    CHECK(read_schedule("cpu") == to_text(Schedule()));
    CHECK(read_schedule("cpu strip=2 row_groups=16") ==
          "cpu row_groups=16 row_block=8 strip=2 unroll=4 cache_columns=0 cache_elements=0 overlap=0 prefetch=0 "
          "column_ranges=1 thread_groups=1 "
          "split_rows=0 nontemporal_kb=-1");
}

TEST_CASE("a CUDA text becomes the schedule that it describes") {
    CHECK(read_schedule("cuda") ==
          "cuda row_groups=1 form=rows threads_per_row=32 rows_per_block=1 rows_per_team=0 cluster=1 blocks_per_sm=1 "
          "vector_width=1 pipeline_depth=1 pace=0 pace_slack=1 staging=registers row_memory=registers "
          "column_memory=registers");
    CHECK(read_schedule("cuda form=two_pass staging=bulk row_memory=shared").find("form=two_pass") !=
          std::string::npos);
    CHECK(read_schedule("cuda staging=tma") == "schedule: staging=tma: allowed: registers async bulk");
    CHECK(read_schedule("cuda strip=2").starts_with("schedule: unknown key 'strip'; allowed: row_groups form"));
}

TEST_CASE("errors name the key, the value and what is allowed") {
    CHECK(read_schedule("") == "schedule: the text is empty");
    CHECK(read_schedule("gpu") == "schedule: kind 'gpu': allowed: cpu cuda");
    CHECK(read_schedule("cpu rowblock=2") ==
          "schedule: unknown key 'rowblock'; allowed: row_groups row_block strip unroll cache_columns cache_elements "
          "overlap prefetch "
          "column_ranges thread_groups split_rows nontemporal_kb; did you mean 'row_block'?");
    CHECK(read_schedule("cpu strip=two") == "schedule: strip=two: must be a whole number");
    CHECK(read_schedule("cpu strip=4294967296") == "schedule: strip=4294967296: must be at most 2147483647");
}

TEST_CASE("random schedules round trip through text") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(10000);
    for (int64_t i = 0; i < count; ++i) {
        const Schedule schedule =
            random.chance(50) ? test::random_schedule(random) : test::random_cuda_schedule(random);
        const std::string text = to_text(schedule);
        CAPTURE(text);
        const auto back = parse_schedule(text);
        REQUIRE(back.status().message() == "");
        REQUIRE(*back == schedule);
        REQUIRE(hash(*back) == hash(schedule));
        const auto damaged = parse_schedule(test::mutate(random, text));
        REQUIRE((damaged.ok() || damaged.status().message().starts_with("schedule: ")));
    }
}

}  // namespace normjit
