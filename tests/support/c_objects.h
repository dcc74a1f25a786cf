// SPDX-License-Identifier: Apache-2.0
// Objects of normjit.h that are destroyed at the end of their scope, and a small problem.
#pragma once

#include "normjit/normjit.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace normjit::test {

inline normjit_spec parsed(const char* text) {
    normjit_spec spec{};
    spec.size = sizeof spec;
    CHECK_MESSAGE(normjit_spec_parse(text, &spec) == NORMJIT_OK, normjit_last_error());
    return spec;
}

inline std::string text_of(const normjit_spec& spec) {
    std::string buffer(4096, '\0');
    size_t bytes = 0;
    if (normjit_spec_text(&spec, buffer.data(), buffer.size(), &bytes) != NORMJIT_OK) return normjit_last_error();
    CHECK(std::strlen(buffer.c_str()) + 1 == bytes);
    return buffer.c_str();
}

struct Destroy {
    void operator()(normjit_engine* engine) const { normjit_engine_destroy(engine); }
    void operator()(normjit_kernel* kernel) const { normjit_kernel_destroy(kernel); }
    void operator()(normjit_artifact* artifact) const { normjit_artifact_destroy(artifact); }
};
using EngineHandle = std::unique_ptr<normjit_engine, Destroy>;
using KernelHandle = std::unique_ptr<normjit_kernel, Destroy>;
using ArtifactHandle = std::unique_ptr<normjit_artifact, Destroy>;

/// Returns null, and prints a message, if this machine has no such device.
inline EngineHandle engine_with(normjit_engine_options options) {
    options.size = sizeof options;
    options.cache_folder = "";
    normjit_engine* engine = nullptr;
    const normjit_status status = normjit_engine_create(&options, &engine);
    if (status == NORMJIT_UNAVAILABLE) MESSAGE("skipped: ", normjit_last_error());
    CHECK((status == NORMJIT_OK || status == NORMJIT_UNAVAILABLE));
    return EngineHandle(engine);
}

inline KernelHandle prepared(const EngineHandle& engine, const char* text) {
    const normjit_spec spec = parsed(text);
    normjit_kernel* kernel = nullptr;
    REQUIRE_MESSAGE(normjit_prepare(engine.get(), &spec, nullptr, &kernel) == NORMJIT_OK, normjit_last_error());
    return KernelHandle(kernel);
}

/// A launch on ones: rmsnorm with rstd = 1, for which dgamma is the number of rows.
struct Ones {
    explicit Ones(int64_t rows, int64_t cols)
        : matrix(static_cast<size_t>(rows * cols), 1.0f),
          vector(static_cast<size_t>(std::max(rows, cols)), 1.0f),
          dgamma(static_cast<size_t>(cols), -1.0f) {
        arguments.size = sizeof arguments;
        arguments.rows = rows;
        for (int tensor : {NORMJIT_X, NORMJIT_DY}) arguments.tensors[tensor] = {matrix.data(), cols, 0, NORMJIT_F32, 0};
        arguments.tensors[NORMJIT_RSTD] = {vector.data(), 0, 0, NORMJIT_F32, 0};
        arguments.tensors[NORMJIT_DGAMMA] = {dgamma.data(), cols, 0, NORMJIT_F32, 0};
    }
    std::vector<float> matrix, vector, dgamma;
    normjit_arguments arguments{};
};
inline constexpr const char* sums = "rmsnorm cols=40 out=dgamma";

}  // namespace normjit::test
