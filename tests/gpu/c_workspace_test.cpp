// SPDX-License-Identifier: Apache-2.0
// Tests the workspace that the C interface reports for kernels that need more for more rows.
#include "c_objects.h"
#include "fake_gpu.h"

#include "normjit/serialise.h"

#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

KernelHandle load_in_c(const EngineHandle& engine, const Artifact& artifact) {
    const std::string bytes = serialise(artifact);
    normjit_artifact* read = nullptr;
    REQUIRE(normjit_artifact_deserialise(bytes.data(), bytes.size(), &read) == NORMJIT_OK);
    const ArtifactHandle handle(read);
    normjit_kernel* kernel = nullptr;
    REQUIRE_MESSAGE(normjit_load(engine.get(), read, nullptr, &kernel) == NORMJIT_OK, normjit_last_error());
    return KernelHandle(kernel);
}

std::pair<int64_t, int64_t> workspace_in_c(const KernelHandle& kernel, int64_t rows, int64_t slices) {
    int64_t minimum = -1, preferred = -1;
    CHECK(normjit_kernel_workspace_bytes(kernel.get(), rows, slices, &minimum, &preferred) == NORMJIT_OK);
    return {minimum, preferred};
}

}  // namespace

TEST_CASE("c: the workspace of rows and slices is that of C++") {
    fake_driver();
    const Artifact artifact =
        fake_artifact("layernorm cols=300000 x=bf16 slices=any",
                      "cuda form=two_pass row_groups=5 threads_per_row=256 vector_width=4 pipeline_depth=2");
    const Kernel kernel = *fake_engine().load(artifact);
    normjit_engine_options options{};
    options.device = "cuda:0";
    const EngineHandle engine = engine_with(options);
    const KernelHandle in_c = load_in_c(engine, artifact);
    for (const int64_t rows : {0, 1, 1001, 1 << 20}) {
        for (const int64_t slices : {1, 2, 77}) {
            CAPTURE(rows);
            CAPTURE(slices);
            CHECK(workspace_in_c(in_c, rows, slices) ==
                  std::pair(kernel.minimum_workspace(rows, slices), kernel.preferred_workspace(rows, slices)));
        }
        CHECK(workspace_in_c(in_c, rows, 0) == workspace_in_c(in_c, rows, 1));
        CHECK(workspace_in_c(in_c, rows, NORMJIT_NO_SLICES) == workspace_in_c(in_c, 0, 1));
    }
    CHECK(workspace_in_c(in_c, 1001, 77).first > workspace_in_c(in_c, 1001, 1).first);
    CHECK(workspace_in_c(in_c, INT64_MAX / 2, 3).first == INT64_MAX);  // there are not so many rows

    int64_t bytes = 0;
    CHECK(normjit_kernel_workspace_bytes(in_c.get(), -1, 1, &bytes, nullptr) == NORMJIT_INVALID_ARGUMENT);
    CHECK(normjit_last_error() == std::string("rows: -1; must be at least 0"));
    CHECK(normjit_kernel_workspace_bytes(in_c.get(), 1, -2, &bytes, nullptr) == NORMJIT_INVALID_ARGUMENT);
    CHECK(normjit_last_error() == std::string("slices: -2; must be at least 0, or NORMJIT_NO_SLICES"));
    CHECK(normjit_kernel_workspace_bytes(nullptr, 1, 1, &bytes, nullptr) == NORMJIT_INVALID_ARGUMENT);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST_CASE("c: older programs pass the rows of all slices") {
    fake_driver();
    normjit_engine_options options{};
    options.device = "cuda:0";
    const EngineHandle engine = engine_with(options);
    const KernelHandle kernel =
        load_in_c(engine, fake_artifact("layernorm cols=300000 slices=any",
                                        "cuda form=two_pass row_groups=5 threads_per_row=256 vector_width=4"));
    int64_t minimum = 0, preferred = 0;
    CHECK(normjit_kernel_workspace(kernel.get(), 77 * 1001, &minimum, &preferred) == NORMJIT_OK);
    CHECK(std::pair(minimum, preferred) == workspace_in_c(kernel, 1001, 77));
}
