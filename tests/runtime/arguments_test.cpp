// SPDX-License-Identifier: Apache-2.0
#include "kernel/arguments.h"

#include "normjit/compile.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

constexpr int64_t cols = 5, rows = 3;

/// A correct launch, which a test damages in one respect. Every tensor has its own 1 KiB.
struct Launch {
    Artifact artifact;
    Arguments arguments;

    explicit Launch(const char* spec = "layernorm cols=5 dresidual=f32") {
        artifact.spec = *parse_spec(spec);
        artifact.geometry = {.row_groups = 2, .column_sums = 2, .partial_cols = 16, .group_bytes = 128};
        arguments.rows = rows;
        for (Tensor tensor : all_tensors) {
            if (!artifact.spec.has(tensor)) continue;
            arguments[tensor] = {at(index(tensor)), artifact.spec.dtype(tensor), info(tensor).axes.column ? cols : 0};
        }
        arguments.workspace = at(tensor_count);
        arguments.workspace_bytes = 256;
    }

    std::byte* at(size_t kib) { return memory_.get()->bytes + 1024 * kib; }

    /// Returns the whole message of the error, or "".
    std::string error() const {
        LaunchArguments placed;
        const OperandPlaces places(artifact.spec, artifact.spec, OperandList(artifact.spec));
        const Status status = place_arguments(artifact, places, arguments, placed);
        CHECK(status.code() == (status.ok() ? Code::ok : Code::invalid_argument));
        return status.message();
    }

  private:
    struct alignas(64) Memory {
        std::byte bytes[1024 * (tensor_count + 1)];
    };
    std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
};

bool starts(const std::string& text, std::string_view start) { return text.starts_with(start); }

}  // namespace

TEST_CASE("correct arguments pass") {
    CHECK(Launch().error() == "");
    CHECK(Launch("rmsnorm cols=5 gamma=none out=dx").error() == "");
    CHECK(Launch("layernorm rows=3 cols=5").error() == "");
}

TEST_CASE("rows") {
    Launch launch;
    launch.arguments.rows = -1;
    CHECK(launch.error() == "launch: rows: -1; must be at least 0");
    launch.arguments.rows = INT64_MAX / 4;
    CHECK(starts(launch.error(), "launch: rows: 2305843009213693951; with cols=5 there are more bytes"));
    Launch fixed("layernorm rows=7 cols=5");
    CHECK(fixed.error() == "launch: rows: 3; the kernel was compiled for rows=7");
}

TEST_CASE("null pointers") {
    for (Tensor tensor : all_tensors) {
        Launch launch;
        if (!launch.artifact.spec.has(tensor)) continue;
        launch.arguments[tensor].data = nullptr;
        CHECK(launch.error() ==
              "launch: " + std::string(name(tensor)) + ": null pointer; the kernel needs this tensor");
        launch.arguments.rows = 0;
        CHECK((launch.error() == "") == (!info(tensor).axes.is_columns()));
    }
    Launch forgotten("layernorm cols=5 x=bf16");
    forgotten.arguments[Tensor::dx] = {};
    CHECK(forgotten.error() == "launch: dx: null pointer; the kernel needs this tensor");
}

TEST_CASE("tensors that the kernel does not use are ignored") {
    Launch launch("layernorm cols=5 out=dbeta gamma=none");
    launch.artifact.geometry.column_sums = 1;
    for (Tensor tensor : {Tensor::x, Tensor::gamma, Tensor::dx, Tensor::mean}) {
        launch.arguments[tensor] = {launch.at(index(Tensor::dbeta)) + 1, DType::f64, -3, -7};
    }
    CHECK(launch.error() == "");
}

TEST_CASE("pointers aligned to their element") {
    for (Tensor tensor : all_tensors) {
        Launch launch;
        if (!launch.artifact.spec.has(tensor)) continue;
        auto& data = launch.arguments[tensor].data;
        data = static_cast<const std::byte*>(data) + 4;
        CHECK(launch.error() == "");
        data = static_cast<const std::byte*>(data) + 2;
        CHECK(starts(launch.error(), "launch: " + std::string(name(tensor)) + ": address "));
        CHECK(launch.error().ends_with("is not a multiple of 4, the size of an element"));
    }
}

TEST_CASE("dtype and cols") {
    Launch launch;
    launch.arguments[Tensor::dgamma].dtype = DType::bf16;
    CHECK(launch.error() == "launch: dgamma: dtype is bf16; the kernel was compiled for f32");
    launch = Launch();
    launch.arguments[Tensor::gamma].cols = 6;
    CHECK(launch.error() == "launch: gamma: cols is 6; must be 5");
    launch = Launch();
    launch.arguments[Tensor::rstd].cols = 5;
    CHECK(launch.error() == "launch: rstd: cols is 5; must be 0, since the tensor has no columns");
}

TEST_CASE("row strides") {
    Launch launch;
    launch.arguments[Tensor::x].row_stride = -5;
    CHECK(launch.error() == "launch: x: row_stride is -5; must be at least 0");
    launch.arguments[Tensor::x].row_stride = 0;
    launch.arguments[Tensor::dy].row_stride = 2;
    CHECK(launch.error() == "");
    for (int64_t stride : {0, 4}) {
        launch.arguments[Tensor::dx].row_stride = stride;
        launch.arguments.rows = rows;
        CHECK(
            starts(launch.error(), "launch: dx: row_stride is " + std::to_string(stride) + "; the rows of an output"));
        launch.arguments.rows = 1;
        CHECK(launch.error() == "");
    }
    launch = Launch();
    launch.arguments[Tensor::gamma].row_stride = 5;
    CHECK(launch.error() == "launch: gamma: row_stride is 5; only matrices have one, leave it contiguous");
    launch.arguments[Tensor::gamma].row_stride = 0;
    CHECK(launch.error() == "launch: gamma: row_stride repeats a row; only matrices have one, leave it contiguous");
}

TEST_CASE("offsets that do not fit") {
    for (int64_t stride : {INT64_MAX, INT64_MAX / 4, INT64_MAX / 8}) {
        Launch launch;
        launch.arguments[Tensor::dy].row_stride = stride;
        CHECK(starts(launch.error(), "launch: dy: row_stride " + std::to_string(stride) + " times 3 rows is beyond"));
    }
    Launch launch;
    launch.arguments[Tensor::gamma].data = reinterpret_cast<const void*>(UINTPTR_MAX - 7);
    CHECK(launch.error().find("beyond the address space") != std::string::npos);
}

TEST_CASE("workspace") {
    Launch launch;
    launch.arguments.workspace_bytes = 127;
    CHECK(launch.error() == "launch: workspace_bytes: 127; at least 128 are needed, 256 are best");
    launch.arguments.workspace_bytes = -1;
    CHECK(starts(launch.error(), "launch: workspace_bytes: -1;"));
    launch = Launch();
    launch.arguments.workspace = launch.at(tensor_count) + 32;
    CHECK(launch.error().ends_with("is not a multiple of 64"));
    launch.arguments.workspace = nullptr;
    CHECK(launch.error() == "launch: workspace: null pointer; at least 128 bytes are needed");
    launch.artifact.spec = *parse_spec("rmsnorm cols=5 gamma=none");
    launch.artifact.geometry = {};
    CHECK(launch.error() == "");
}

TEST_CASE("outputs overlap nothing") {
    for (Tensor output : {Tensor::dx, Tensor::dgamma, Tensor::dbeta}) {
        for (Tensor other : all_tensors) {
            Launch launch;
            if (other == output || !launch.artifact.spec.has(other)) continue;
            // The last element of one tensor overlaps the first of the other, and vice versa.
            const int64_t last = 4 * (info(other).axes.is_matrix()    ? rows * cols - 1
                                      : info(other).axes.is_columns() ? cols - 1
                                                                      : rows - 1);
            launch.arguments[output].data = launch.at(index(other)) + last;
            CHECK(launch.error().find("overlaps") != std::string::npos);
            launch.arguments[output].data = launch.at(index(other)) + last + 4;
            CHECK(launch.error() == "");
        }
        Launch launch;
        launch.arguments[output].data = launch.at(tensor_count) + 252;
        CHECK(starts(launch.error(), "launch: workspace: overlaps " + std::string(name(output))));
        launch.arguments[output].data = launch.at(tensor_count) + 256;
        CHECK(launch.error() == "");
    }
}

TEST_CASE("dx over an input matrix") {
    for (Tensor input : {Tensor::x, Tensor::dy, Tensor::dresidual}) {
        Launch launch;
        launch.arguments[Tensor::dx].data = launch.arguments[input].data;
        CHECK(launch.error() == "");
        launch.arguments[Tensor::dx].row_stride = 6;
        CHECK(starts(launch.error(), "launch: dx: overlaps " + std::string(name(input))));
        launch.arguments[input].row_stride = 6;
        CHECK(launch.error() == "");
        launch.arguments[Tensor::dx].data = launch.at(index(input)) + 4;
        CHECK(starts(launch.error(), "launch: dx: overlaps " + std::string(name(input))));
    }
    Launch launch("layernorm cols=5 x=bf16 dy=f16");
    launch.arguments[Tensor::dx].data = launch.arguments[Tensor::dy].data;
    CHECK(starts(launch.error(), "launch: dx: overlaps dy"));
}

TEST_CASE("an output for groups of columns has a column for each, and takes no matrix's place") {
    Launch launch("norm f(x[M,N]) -> y[M,N], g[M,N/16] { g = group_max(x, 16); y = x / g } pass=forward cols=32");
    const auto tensor = [&](const char* name) { return *launch.artifact.spec.find(name); };
    launch.artifact.geometry = {.row_groups = 2};
    for (const char* name : {"x", "y", "g"}) launch.arguments[tensor(name)].cols = *name == 'g' ? 2 : 32;
    CHECK(launch.error() == "");
    Argument& g = launch.arguments[tensor("g")];
    g.cols = 32;
    CHECK(launch.error() == "launch: g: cols is 32; must be 2");
    g.cols = 2, g.row_stride = 1;
    CHECK(launch.error() == "launch: g: row_stride is 1; the rows of an output must be at least cols=2 apart");
    g.row_stride = 32, g.data = launch.arguments[tensor("x")].data;
    CHECK(starts(launch.error(), "launch: g: overlaps x"));
    g.data = launch.at(tensor_count);
    CHECK(launch.error() == "");
}

TEST_CASE("matrices side by side in the rows of a larger one") {
    Launch launch;
    for (Tensor tensor : {Tensor::x, Tensor::dx}) launch.arguments[tensor].row_stride = 10;
    launch.arguments[Tensor::dx].data = launch.at(index(Tensor::x)) + 5 * 4;
    CHECK(launch.error() == "");
    launch.arguments[Tensor::dx].data = launch.at(index(Tensor::x)) + 4 * 4;
    CHECK(starts(launch.error(), "launch: dx: overlaps x"));
}

namespace {

/// Returns a launch with 3 slices of 3 rows.
Launch sliced(const char* spec = "layernorm cols=5 slices=any per_slice=gamma,beta") {
    Launch launch(spec);
    launch.artifact.geometry = {.row_groups = 2, .column_sums = 2, .partial_cols = 16, .group_bytes = 64};
    launch.arguments.slices = 3;
    return launch;
}

}  // namespace

TEST_CASE("slices") {
    CHECK(sliced().error() == "");
    Launch launch = sliced();
    launch.arguments.slices = -1;
    CHECK(launch.error() == "launch: slices: -1; must be at least 0");
    launch.arguments.slices = 0;
    CHECK(launch.error() == "");
    Launch fixed = sliced("layernorm cols=5 slices=4 per_slice=gamma");
    CHECK(fixed.error() == "launch: slices: 3; the kernel was compiled for slices=4");
    Launch plain;
    plain.arguments.slices = 2;
    CHECK(plain.error() == "launch: slices: 2; the kernel was compiled for slices=1");
}

TEST_CASE("slice strides") {
    Launch launch = sliced();
    launch.arguments[Tensor::x].slice_stride = 0;  // every slice is the first one
    launch.arguments[Tensor::gamma].slice_stride = 0;
    CHECK(launch.error() == "");
    launch.arguments[Tensor::x].slice_stride = -1;
    CHECK(launch.error() == "launch: x: slice_stride is -1; must be at least 0");
    launch = sliced();
    launch.arguments[Tensor::mean].slice_stride = 3;
    CHECK(starts(launch.error(), "launch: mean: slice_stride is 3; the tensor has no row per slice"));
    launch = sliced("layernorm cols=5 slices=any per_slice=beta");
    launch.arguments[Tensor::gamma].slice_stride = 5;
    CHECK(starts(launch.error(), "launch: gamma: slice_stride is 5; the tensor has no row per slice"));
    Launch one = sliced("layernorm cols=5 slices=1");
    one.arguments.slices = 1;
    one.arguments[Tensor::gamma].slice_stride = 5;  // callers may pass this for any number of slices
    CHECK(one.error() == "");
    launch = sliced();
    launch.arguments[Tensor::dx].slice_stride = 14;  // 3 rows of 5 take 15
    CHECK(launch.error() == "launch: dx: slice_stride is 14; the slices of an output may not overlap");
    launch.arguments[Tensor::dx].slice_stride = 5;  // slices are side by side in rows of 15
    launch.arguments[Tensor::dx].row_stride = 15;
    CHECK(launch.error() == "");
    launch.arguments[Tensor::dx].slice_stride = 4;
    CHECK(starts(launch.error(), "launch: dx: slice_stride is 4;"));
    launch = sliced();
    launch.arguments[Tensor::dgamma].slice_stride = 4;
    CHECK(launch.error() == "launch: dgamma: slice_stride is 4; the slices of an output may not overlap");
    launch = sliced();
    launch.arguments[Tensor::x].slice_stride = INT64_MAX / 2;
    CHECK(starts(launch.error(), "launch: x: slice_stride 4611686018427387903 times 3 slices is beyond"));
}

TEST_CASE("slices that lie between those of another tensor") {
    Launch launch = sliced();
    for (const Tensor tensor : {Tensor::x, Tensor::dx}) {
        launch.arguments[tensor].data = launch.at(0);
        launch.arguments[tensor].slice_stride = 30;
    }
    CHECK(launch.error() == "");  // a slice of dx may replace the same slice of x
    launch.arguments[Tensor::dx].data = launch.at(0) + 60;
    CHECK(launch.error() == "");  // a slice of dx may follow each slice of x
    launch.arguments[Tensor::dx].data = launch.at(0) + 56;
    CHECK(starts(launch.error(), "launch: dx: overlaps x"));
    launch = sliced();
    for (const Tensor tensor : {Tensor::dgamma, Tensor::dbeta}) launch.arguments[tensor].slice_stride = 10;
    launch.arguments[Tensor::dbeta].data = static_cast<const std::byte*>(launch.arguments[Tensor::dgamma].data) + 20;
    CHECK(launch.error() == "");
    launch.arguments[Tensor::dbeta].data = static_cast<const std::byte*>(launch.arguments[Tensor::dgamma].data) + 16;
    CHECK(starts(launch.error(), "launch: dbeta: overlaps dgamma"));
}
