// SPDX-License-Identifier: Apache-2.0
#include "normjit/artifact.h"

#include "backend/backend.h"
#include "mutate.h"
#include "random_spec.h"
#include "support/text.h"

#include "normjit/serialise.h"

#include <string>
#include <type_traits>

#include <doctest/doctest.h>

namespace normjit {

namespace {

std::vector<uint8_t> random_bytes(test::Random& random) {
    std::vector<uint8_t> bytes(static_cast<size_t>(random.between(1, 300)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
    return bytes;
}

/// Returns an artifact like that of a back end, except for the code.
Artifact random_artifact(test::Random& random) {
    const Target target = test::random_target(random);
    const Schedule schedule = target.is_cuda() ? test::random_cuda_schedule(random) : test::random_schedule(random);
    const auto plan = plan::make(test::random_spec(random), schedule, target);
    REQUIRE_MESSAGE(plan.ok(), plan.status().message());
    const CodeFormat format = target.is_cuda() ? random.pick({CodeFormat::cubin, CodeFormat::ptx})
                                               : random.pick({CodeFormat::x86_64, CodeFormat::portable});
    Artifact artifact = backend::describe_launches(*plan, format);
    artifact.code = random_bytes(random);
    if (target.is_cuda()) {
        artifact.maker = "nvrtc-13.0";
    } else {
        artifact.entries = {{"rows", 0}, {"final_reduce", static_cast<int64_t>(artifact.code.size()) - 1}};
    }
    return artifact;
}

Artifact artifact_of(const char* spec, const char* schedule, const char* target) {
    const auto plan = plan::make(*parse_spec(spec), *parse_schedule(schedule), *parse_target(target));
    REQUIRE_MESSAGE(plan.ok(), plan.status().message());
    return backend::describe_launches(*plan, plan->target.is_cuda() ? CodeFormat::cubin : CodeFormat::x86_64);
}

std::string with(std::string bytes, std::string_view old_part, std::string_view new_part) {
    const size_t at = bytes.find(old_part);
    REQUIRE(at != bytes.npos);
    return bytes.replace(at, old_part.size(), new_part);
}

/// Returns the bytes with a matching checksum.
std::string sealed(std::string bytes) {
    bytes.resize(bytes.rfind("checksum "));
    return bytes + "checksum " + text::checksum(bytes) + "\n";
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
    geometry = {.row_groups = 8, .group_bytes = 128, .cuda = {.row_bytes = 12}};
    CHECK(geometry.partials_at(10) == 128);
    CHECK(geometry.minimum_workspace(10) == 256);
    CHECK(geometry.groups(10, 128 + 3 * 128) == 3);
    CHECK(geometry.groups(10, 127) == 0);
    CHECK(geometry.minimum_workspace(INT64_MAX) == INT64_MAX);
}

TEST_CASE("how CUDA launches divide slices") {
    const Spec spec = *parse_spec("layernorm cols=64 slices=any per_slice=gamma,beta");
    const Spec mixed = *parse_spec("layernorm cols=64 slices=any per_slice=gamma");
    const Geometry geometry{.row_groups = 100, .column_sums = 2, .group_bytes = 128, .cuda = {.slice_parts = 400}};
    const CudaPath path{.vector_width = 4, .rows_per_block = 2, .launches = {}};
    const auto partition = [&](const Spec& of, Batch batch, int64_t partials) {
        return path.partition(OperandList(of), geometry, batch, partials * 128);
    };
    const RowPartition few = partition(spec, {4096, 8}, 400);  // all groups run twice, rather than 96 of them once
    CHECK(few.row_groups == 200);
    CHECK(few.parts == 25);
    CHECK(few.pieces == 200);
    CHECK(few.reduced_slices == 8);
    const RowPartition between = partition(spec, {4096, 70}, 400);  // with one part each, 30 groups would be idle
    CHECK(between.row_groups == 280);
    CHECK(between.parts == 4);
    CHECK(between.pieces == 280);
    const RowPartition many = partition(spec, {2, 100'000}, 400);
    CHECK(many.row_groups == 65535);
    CHECK(many.parts == 1);
    CHECK(many.reduced_slices == 0);
    CHECK(partition(mixed, {2, 100'000}, 400).reduced_slices == 1);
    CHECK(partition(mixed, {2, 100'000}, 400).row_groups == 100);  // each group sums over its slices
    CHECK(partition(spec, {4096, 8}, 8).parts == 1);               // the workspace has no room for more
    CHECK(partition(spec, {4096, 8}, 1).row_groups == 8);
    const RowPartition none = partition(spec, {0, 7}, 400);
    CHECK(none.row_groups == 0);
    CHECK(none.reduced_slices == 7);
    CHECK(partition(spec, {7, 0}, 400).reduced_slices == 0);
    CHECK(partition(mixed, {7, 0}, 400).reduced_slices == 1);  // sums over all slices are zeros
}

TEST_CASE("the grids of CUDA launches") {
    const Geometry geometry{.row_groups = 8, .column_sums = 3, .group_bytes = 128, .cuda = {.final_outputs = 2}};
    const auto blocks = [&](CudaGrid grid, int64_t rows, int64_t groups) {
        const CudaLaunch launch{.entry = "k", .grid = grid, .blocks = 100, .cluster = 4};
        const auto [x, y, z] = launch.grid_of(geometry, rows, {.row_groups = groups});
        CHECK(z == 1);
        return std::pair(x, y);
    };
    CHECK(blocks(CudaGrid::row_groups, 50, 8) == std::pair<int64_t, int64_t>(32, 1));
    CHECK(blocks(CudaGrid::rows, 50, 8) == std::pair<int64_t, int64_t>(50, 1));
    CHECK(blocks(CudaGrid::columns_by_row_groups, 50, 8) == std::pair<int64_t, int64_t>(100, 8));
    CHECK(blocks(CudaGrid::columns_by_outputs, 50, 8) == std::pair<int64_t, int64_t>(100, 2));

    const CudaLaunch reduce{.entry = "k", .grid = CudaGrid::columns_by_outputs, .blocks = 3};
    CHECK(reduce.grid_of(geometry, 50, {.row_groups = 8, .reduced_slices = 100'000}).z == 65535);
    CHECK(reduce.grid_of(geometry, 50, {.row_groups = 8, .reduced_slices = 0}).z == 0);

    const CudaPath path{.vector_width = 8, .rows_per_block = 4, .launches = {}};
    CHECK(path.groups(geometry, 9, 8 * 128) == 3);
    CHECK(path.groups(geometry, 9, 2 * 128) == 2);
    CHECK(path.alignment(DType::bf16) == 16);
    CHECK(path.alignment(DType::f32) == 16);

    CudaPath shifted = path;
    shifted.shifted = true;  // two groups of four rows: eight rows later, a row starts at the same place in a vector
    CHECK(shifted.groups(geometry, 1000, 8 * 128) == 8);
    CHECK(shifted.groups(geometry, 1000, 7 * 128) == 6);
    CHECK(shifted.groups(geometry, 1000, 128) == 0);
    CHECK(shifted.groups(geometry, 9, 8 * 128) == 3);  // every team has one row
    CHECK(shifted.groups(geometry, 4, 128) == 1);
    shifted.rows_per_block = 16;
    CHECK(shifted.groups(geometry, 1000, 5 * 128) == 5);
}

TEST_CASE("row groups of CUDA launches whose teams take few rows each") {
    const Geometry geometry{.row_groups = 8};
    CudaPath path{.vector_width = 8, .rows_per_block = 4, .rows_per_team = 2, .launches = {}};
    CHECK(path.groups(geometry, 1000, 0) == 125);
    CHECK(path.groups(geometry, 1001, 0) == 126);
    CHECK(path.groups(geometry, 40, 0) == 8);  // as many groups as run at once, rather than two rows per team
    CHECK(path.groups(geometry, 9, 0) == 3);
    CHECK(path.groups(geometry, 0, 0) == 0);
    CHECK(path.groups(geometry, INT64_MAX, 0) * 16 <= INT32_MAX);  // blocks and teams can be counted in 31 bits
    const Spec spec = *parse_spec("layernorm pass=forward cols=64 slices=any per_slice=gamma");
    const RowPartition partition = path.partition(OperandList(spec), geometry, {100, 50}, 0);
    CHECK(partition.parts == 13);
    CHECK(partition.pieces == 650);
    CHECK(partition.row_groups == 650);
    path.shifted = true;  // an even number of groups: eight rows later, a row starts at the same place in a vector
    CHECK(path.groups(geometry, 1004, 0) == 126);
    CHECK(path.groups(geometry, 1000, 0) == 124);
}

TEST_CASE("a row group sums over slices only where its rows start at the same place of a vector") {
    int alike = 0, unlike = 0;
    for (int64_t number = 0; number < 3 * 3 * 4 * 8 * 8; ++number) {
        const int64_t parts = 1 + number % 3, row_groups = 1 + number / 3 % 3, slices = 1 + number / 9 % 4;
        const int64_t row_stride = number / 36 % 8, slice_stride = number / 288;
        const CudaPath path{.vector_width = 8, .rows_per_block = 4, .shifted = true, .launches = {}};
        const RowPartition partition{.row_groups = row_groups, .parts = parts, .pieces = parts * slices};
        const auto start_of = [&](int64_t item) {
            return (item / parts * slice_stride + item % parts * path.rows_per_block * row_stride) % path.vector_width;
        };
        bool same = true;
        for (int64_t piece = row_groups; piece < partition.pieces; ++piece)
            same &= start_of(piece) == start_of(piece - row_groups);
        if (path.pieces_start_alike(partition, row_stride, slice_stride)) CHECK(same);
        if (slice_stride == 0 && row_stride % 2 == 0)
            CHECK(path.pieces_start_alike(partition, row_stride, slice_stride));
        ++(same ? alike : unlike);
    }
    CHECK(alike > 0);
    CHECK(unlike > 0);
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

TEST_CASE("random artifacts round trip through bytes") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(2000);
    for (int64_t i = 0; i < count; ++i) {
        const Artifact artifact = random_artifact(random);
        const std::string bytes = serialise(artifact);
        CAPTURE(to_text(artifact.spec));
        const auto back = parse_artifact(bytes);
        REQUIRE(back.status().message() == "");
        REQUIRE(*back == artifact);
        REQUIRE(serialise(*back) == bytes);
        REQUIRE(bytes.starts_with(code_key(artifact)));
        REQUIRE(bytes.starts_with(code_key(artifact.spec, artifact.schedule, artifact.target)));
    }
}

TEST_CASE("an artifact without code or entries round trips") {
    const Artifact artifact = artifact_of("layernorm cols=8", "cpu row_groups=1", "x86-64");
    const auto back = parse_artifact(serialise(artifact));
    REQUIRE(back.status().message() == "");
    CHECK(*back == artifact);
}

TEST_CASE("geometry and paths come from spec, schedule and target, not from the file") {
    const Artifact good =
        artifact_of("layernorm cols=5000", "cpu column_ranges=3 thread_groups=2 split_rows=9", "x86-64");
    REQUIRE(good.geometry.cpu.split_rows == 9);
    CHECK(parse_artifact(serialise(good))->geometry == good.geometry);
    Artifact lying = good;
    lying.geometry.final_cols = INT64_MAX;
    const std::string refusal =
        "artifact: launch: this build would launch it differently; another version of the generator made it";
    CHECK(parse_artifact(serialise(lying)).status().message() == refusal);
    lying = good;
    lying.geometry.cpu.sweeps = INT64_MAX;
    CHECK(parse_artifact(serialise(lying)).status().message() == refusal);

    Artifact gpu = artifact_of("layernorm cols=4096 x=bf16", "cuda threads_per_row=512 vector_width=8", "sm_90");
    REQUIRE(gpu.cuda_paths.size() == 2);
    CHECK(parse_artifact(serialise(gpu))->cuda_paths == gpu.cuda_paths);
    gpu.cuda_paths[0].launches[0].threads = 1024;
    CHECK(parse_artifact(serialise(gpu)).status().message() == refusal);
    CHECK(parse_artifact(sealed(with(serialise(good), "row_groups=1", "row_groups=0"))).status().message() ==
          "artifact: schedule: row_groups=0: must be 1 to 1048576");
}

TEST_CASE("an artifact is refused if any number of its launches differs") {
    const Artifact good = artifact_of("layernorm cols=4096 x=bf16", "cuda threads_per_row=512 vector_width=8", "sm_90");
    REQUIRE(parse_artifact(serialise(good)).ok());
    Artifact bad = good;
    const auto is_seen = [&](auto& field, const std::string& name) {
        const auto before = field;
        using Field = std::remove_reference_t<decltype(field)>;
        if constexpr (std::is_same_v<Field, std::string>) {
            field += "x";
        } else {
            field = static_cast<Field>(static_cast<int64_t>(field) == 0 ? 1 : 0);
        }
        CHECK_MESSAGE(!parse_artifact(serialise(bad)).ok(), name);
        field = before;
    };
    // The structured binding must name all members, or this does not compile.
    auto& [vector_width, rows_per_block, rows_per_team, shifted, launches] = bad.cuda_paths[0];
    is_seen(vector_width, "vector_width");
    is_seen(rows_per_block, "rows_per_block");
    is_seen(rows_per_team, "rows_per_team");
    is_seen(shifted, "shifted");
    auto& [entry, grid, blocks, threads, shared_bytes, cluster, dependent] = launches[0];
    is_seen(entry, "entry");
    is_seen(grid, "grid");
    is_seen(blocks, "blocks");
    is_seen(threads, "threads");
    is_seen(shared_bytes, "shared_bytes");
    is_seen(cluster, "cluster");
    is_seen(dependent, "dependent");
    bad = good;
    bad.cuda_paths[0].launches.pop_back();
    CHECK(!parse_artifact(serialise(bad)).ok());
    bad = good;
    bad.cuda_paths.pop_back();
    CHECK(!parse_artifact(serialise(bad)).ok());
}

TEST_CASE("errors say which part is damaged") {
    const std::string version = std::to_string(generator_version);
    Artifact artifact = artifact_of("layernorm cols=8", "cpu strip=4", "x86-64");
    artifact.code = {0xde, 0xad, '\n', 0xef};
    artifact.entries = {{"rows", 0}, {"final_reduce", 2}};
    const std::string bytes = serialise(artifact);
    const auto error_of = [](std::string_view damaged) { return parse_artifact(damaged).status().message(); };
    const auto error_after = [&](std::string_view old_part, std::string_view new_part) {
        return error_of(with(bytes, old_part, new_part));
    };
    CHECK(error_of("") == "artifact: version: does not start with 'normjit-artifact 1'");
    CHECK(error_after("artifact 1", "artifact 9") == "artifact: version: does not start with 'normjit-artifact 1'");
    CHECK(error_after("generator " + version, "generator 99") ==
          "artifact: generator: is '99'; this build reads " + version + " only");
    CHECK(error_after("spec layer", "norm layer") ==
          "artifact: spec: there is '" + with(bytes.substr(0, 0) + "spec " + to_text(artifact.spec), "spec", "norm") +
              "' instead");
    CHECK(error_after("cols=8", "cols=0") == "artifact: spec: cols=0: must be at least 1");
    CHECK(error_after("strip=4", "strip=") == "artifact: schedule: strip=: must be a whole number");
    CHECK(error_after("cores=1", "cores=0") == "artifact: target: cores=0: must be at least 1");
    CHECK(error_after("maker none", "maker ../x") == "artifact: maker: '../x' is not a name");
    CHECK(error_after("code x86-64 4", "code x87 4") == "artifact: code: 'x87' is unknown");
    CHECK(error_after("code x86-64 4", "code x86-64 -4") == "artifact: code: its size must be at least 0");
    CHECK(error_after("code x86-64 4", "code x86-64 3") == "artifact: code: does not have the stated 3 bytes");
    CHECK(error_after("code x86-64 4", "code x86-64 999") == "artifact: code: does not have the stated 999 bytes");
    CHECK(error_after("\xde", "\xdf") == "artifact: checksum: does not match: the artifact is damaged");
    CHECK(error_of(bytes + "x") == "artifact: checksum: does not match: the artifact is damaged");
    CHECK(error_of(bytes.substr(0, 40)) == "artifact: generator: is cut off");
    const auto error_with = [&](std::string_view old_part, std::string_view new_part) {
        return error_of(sealed(with(bytes, old_part, new_part)));
    };
    CHECK(error_with("reduce:2", "reduce:4") == "artifact: entries: the offset of final_reduce must be at most 3");
    CHECK(error_with("final_reduce:2", "rows:2") == "artifact: entries: rows comes twice");
    CHECK(error_with("rows:0", "ro-ws:0") == "artifact: entries: 'ro-ws:0' is not name:offset");
}

TEST_CASE("damaged bytes are never taken for an artifact") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(5000);
    for (int64_t i = 0; i < count; ++i) {
        const Artifact artifact = random_artifact(random);
        std::string bytes = test::mutate(random, serialise(artifact));
        if (i % 2 == 0 && bytes.rfind("checksum ") != bytes.npos) bytes = sealed(bytes);
        const auto back = parse_artifact(bytes);
        if (back) {
            REQUIRE(parse_artifact(serialise(*back)).ok());
            if (i % 2 == 1) REQUIRE(*back == artifact);
            continue;
        }
        REQUIRE(back.status().message().starts_with("artifact: "));
        REQUIRE(test::is_printable_line(back.status().message()));
    }
}

}  // namespace normjit
