// SPDX-License-Identifier: Apache-2.0
#include "normjit/artifact.h"

#include "mutate.h"
#include "random_spec.h"

#include <string>

#include <doctest/doctest.h>

namespace normjit {

namespace {

std::vector<uint8_t> random_bytes(test::Random& random) {
    std::vector<uint8_t> bytes(static_cast<size_t>(random.between(1, 300)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
    return bytes;
}

CudaPath random_path(test::Random& random) {
    CudaPath path{.vector_width = static_cast<int>(random.between(1, 16)),
                  .rows_per_block = static_cast<int>(random.between(1, 128)),
                  .launches = {}};
    for (int64_t i = random.between(0, 3); i > 0; --i) {
        path.launches.push_back({.entry = random.pick({"row_kernel", "final_reduce"}),
                                 .grid = random.pick(all_cuda_grids),
                                 .blocks = random.between(1, 1 << 20),
                                 .threads = static_cast<int>(random.between(1, 1024)),
                                 .shared_bytes = random.between(0, 1 << 18),
                                 .cluster = static_cast<int>(random.between(1, 16)),
                                 .dependent = random.chance(50)});
    }
    return path;
}

Artifact random_artifact(test::Random& random) {
    Artifact artifact;
    artifact.spec = test::random_spec(random);
    artifact.schedule = random.chance(50) ? test::random_schedule(random) : test::random_cuda_schedule(random);
    artifact.target = test::random_target(random);
    artifact.geometry.row_groups = artifact.schedule.row_groups;
    artifact.geometry.column_sums = random.between(0, 2);
    artifact.geometry.partial_cols = random.between(0, 5000);
    artifact.geometry.group_bytes = random.between(0, 1 << 20);
    artifact.geometry.final_cols = random.between(0, 4096);
    artifact.geometry.stream_bytes = random.between(-1, 1 << 20);
    artifact.geometry.row_bytes = random.between(0, 64);
    artifact.format = random.pick(all_code_formats);
    for (int64_t i = random.between(0, 2); i > 0; --i) artifact.cuda_paths.push_back(random_path(random));
    artifact.code = random_bytes(random);
    if (!artifact.cuda_paths.empty()) return artifact;
    artifact.entries = {{"rows", 0}, {"final_reduce", static_cast<int64_t>(artifact.code.size()) - 1}};
    return artifact;
}

std::string error_after(std::string text, std::string_view old_part, std::string_view new_part) {
    const size_t at = text.find(old_part);
    REQUIRE(at != text.npos);
    text.replace(at, old_part.size(), new_part);
    return parse_artifact(text).status().message();
}

}  // namespace

TEST_CASE("row groups of a launch") {
    Geometry geometry;
    geometry.row_groups = 16;
    geometry.group_bytes = 100;
    CHECK(geometry.groups(1000, 1600) == 16);
    CHECK(geometry.groups(1000, 1599) == 15);
    CHECK(geometry.groups(3, 1600) == 3);
    CHECK(geometry.groups(0, 1600) == 0);
    CHECK(geometry.groups(1000, 99) == 0);
    geometry.group_bytes = 0;
    CHECK(geometry.groups(1000, 0) == 16);
    geometry = {.row_groups = 8, .group_bytes = 128, .row_bytes = 12};
    CHECK(geometry.partials_at(10) == 128);
    CHECK(geometry.minimum_workspace(10) == 256);
    CHECK(geometry.groups(10, 128 + 3 * 128) == 3);
    CHECK(geometry.groups(10, 127) == 0);
    CHECK(geometry.minimum_workspace(INT64_MAX) == INT64_MAX);
}

TEST_CASE("the grids of CUDA launches") {
    const Geometry geometry{.row_groups = 8, .column_sums = 2, .group_bytes = 128};
    const auto blocks = [&](CudaGrid grid, int64_t rows, int64_t groups) {
        const CudaLaunch launch{.entry = "k", .grid = grid, .blocks = 100, .cluster = 4};
        const auto [x, y] = launch.grid_of(geometry, rows, groups);
        return std::pair(x, y);
    };
    CHECK(blocks(CudaGrid::row_groups, 50, 8) == std::pair<int64_t, int64_t>(32, 1));
    CHECK(blocks(CudaGrid::rows, 50, 8) == std::pair<int64_t, int64_t>(50, 1));
    CHECK(blocks(CudaGrid::columns_by_row_groups, 50, 8) == std::pair<int64_t, int64_t>(100, 8));
    CHECK(blocks(CudaGrid::columns_by_sums, 50, 8) == std::pair<int64_t, int64_t>(100, 2));

    const CudaPath path{.vector_width = 8, .rows_per_block = 4, .launches = {}};
    CHECK(path.groups(geometry, 9, 8 * 128) == 3);
    CHECK(path.groups(geometry, 9, 2 * 128) == 2);
    CHECK(path.alignment(DType::bf16) == 16);
    CHECK(path.alignment(DType::f32) == 16);

    CudaPath shifted = path;
    shifted.shifted = true;  // two groups of four rows: eight rows on, a row starts at the same place of a vector
    CHECK(shifted.groups(geometry, 1000, 8 * 128) == 8);
    CHECK(shifted.groups(geometry, 1000, 7 * 128) == 6);
    CHECK(shifted.groups(geometry, 1000, 128) == 0);
    CHECK(shifted.groups(geometry, 9, 8 * 128) == 3);  // every team has one row
    CHECK(shifted.groups(geometry, 4, 128) == 1);
    shifted.rows_per_block = 16;
    CHECK(shifted.groups(geometry, 1000, 5 * 128) == 5);
}

TEST_CASE("row groups cover every row once") {
    for (int64_t rows : {int64_t{1}, int64_t{7}, int64_t{1000}, INT64_MAX}) {
        for (int64_t groups : {int64_t{1}, int64_t{3}, int64_t{64}}) {
            if (groups > rows) continue;
            CHECK(Geometry::row_begin(rows, groups, 0) == 0);
            CHECK(Geometry::row_begin(rows, groups, groups) == rows);
            for (int64_t g = 0; g < groups; ++g) {
                const int64_t taken = Geometry::row_begin(rows, groups, g + 1) - Geometry::row_begin(rows, groups, g);
                CHECK(taken - rows / groups >= 0);
                CHECK(taken - rows / groups <= 1);
            }
        }
    }
}

TEST_CASE("entries are found by name") {
    Artifact artifact;
    artifact.entries = {{"rows", 0}, {"final_reduce", 64}};
    REQUIRE(artifact.find("final_reduce"));
    CHECK(artifact.find("final_reduce")->offset == 64);
    CHECK_FALSE(artifact.find("final"));
}

TEST_CASE("random artifacts round trip through text") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(2000);
    for (int64_t i = 0; i < count; ++i) {
        const Artifact artifact = random_artifact(random);
        const std::string text = to_text(artifact);
        CAPTURE(text);
        REQUIRE(text.find('\n') == text.npos);
        const auto back = parse_artifact(text + "\n");
        REQUIRE(back.status().message() == "");
        REQUIRE(*back == artifact);
        REQUIRE(hash(*back) == hash(artifact));
    }
}

TEST_CASE("an artifact without code or entries round trips") {
    Artifact artifact;
    artifact.spec = *parse_spec("layernorm cols=8");
    const auto back = parse_artifact(to_text(artifact));
    REQUIRE(back.status().message() == "");
    CHECK(*back == artifact);
}

TEST_CASE("errors say which part is damaged") {
    const std::string version = std::to_string(generator_version);
    Artifact artifact;
    artifact.spec = *parse_spec("layernorm cols=8");
    artifact.code = {0xde, 0xad, 0xbe, 0xef};
    artifact.entries = {{"rows", 0}, {"final_reduce", 2}};
    const std::string text = to_text(artifact);
    CHECK(parse_artifact("").status().message() == "artifact: version: does not start with normjit-artifact");
    CHECK(error_after(text, "artifact " + version, "artifact 99") ==
          "artifact: version: is '99'; this build reads " + version + " only");
    CHECK(error_after(text, " | deadbeef", "").starts_with("artifact: parts: there are 9 instead of 10"));
    CHECK(error_after(text, "cols=8", "cols=0") == "artifact: spec: cols=0: must be at least 1");
    CHECK(error_after(text, "strip=4", "strip=") == "artifact: schedule: strip=: must be a whole number");
    CHECK(error_after(text, "cores=1", "cores=0") == "artifact: target: cores=0: must be at least 1");
    CHECK(error_after(text, "final_cols=0", "") == "artifact: geometry: final_cols is missing");
    CHECK(error_after(text, "geometry row_groups=1", "geometry row_groups=0") ==
          "artifact: geometry: row_groups=0: must be at least 1");
    CHECK(error_after(text, "reduce:2", "reduce:4") ==
          "artifact: entries: the offset of final_reduce must be at most 3");
    CHECK(error_after(text, "final_reduce:2", "rows:2") == "artifact: entries: rows comes twice");
    CHECK(error_after(text, "rows:0", "ro-ws:0") == "artifact: entries: 'ro-ws:0' is not name:offset");
    CHECK(error_after(text, "x86-64 |", "x87 |") == "artifact: format: 'x87' is unknown");
    CHECK(error_after(text, " |  | x86-64", " | path, row_kernel grid=cols | x86-64") ==
          "artifact: launch: grid=cols: allowed: row_groups rows columns_by_row_groups columns_by_sums");
    CHECK(error_after(text, "deadbeef", "deadbexx") == "artifact: code: byte 3: 'xx' is not hexadecimal");
    CHECK(error_after(text, "deadbeef", "deadbee") == "artifact: code: ends in the middle of byte 3");
    CHECK(error_after(text, "deadbeef", "deadbeee") == "artifact: checksum: does not match: the text is damaged");
}

TEST_CASE("damaged text is never taken for an artifact") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(5000);
    for (int64_t i = 0; i < count; ++i) {
        const Artifact artifact = random_artifact(random);
        const std::string text = test::mutate(random, to_text(artifact));
        CAPTURE(text);
        const auto back = parse_artifact(text);
        if (back) {
            REQUIRE(*back == artifact);
            continue;
        }
        REQUIRE(back.status().message().starts_with("artifact: "));
        REQUIRE(test::is_printable_line(back.status().message()));
    }
}

}  // namespace normjit
