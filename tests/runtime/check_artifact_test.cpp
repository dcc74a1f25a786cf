// SPDX-License-Identifier: Apache-2.0
#include "kernel/check_artifact.h"

#include <string>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

/// An artifact for `made_for`, whose code is empty.
Artifact artifact_for(const char* made_for, CodeFormat format) {
    Artifact artifact;
    artifact.spec = *parse_spec("rmsnorm cols=8");
    artifact.target = *parse_target(made_for);
    artifact.format = format;
    return artifact;
}

/// Returns what `machine` lacks; "" if nothing.
std::string lacking(const Artifact& artifact, const char* machine) {
    const Target target = *parse_target(machine);
    const Status status =
        target.is_cuda() ? check_cuda_artifact(artifact, target) : check_cpu_artifact(artifact, target);
    if (status.code() != Code::unavailable) return "";
    const std::string before = "this device lacks ", message = status.message();
    return message.substr(message.find(before) + before.size());
}

}  // namespace

TEST_CASE("a CPU runs code for fewer instructions than it has, of its own kind") {
    const auto code_for = [](const char* target, CodeFormat format = CodeFormat::x86_64) {
        return artifact_for(target, format);
    };
    CHECK(lacking(code_for("x86-64-v3"), "x86-64-avx512") == "");
    CHECK(lacking(code_for("x86-64-avx512"), "x86-64-v3") == "that kind of processor");
    CHECK(lacking(code_for("x86-64-v3"), "x86-64") == "that kind of processor");
    CHECK(lacking(code_for("x86-64"), "aarch64") == "that kind of processor");
    CHECK(lacking(code_for("aarch64", CodeFormat::aarch64), "x86-64-avx512") == "that kind of processor");
    CHECK(lacking(code_for("aarch64", CodeFormat::portable), "x86-64") == "");
    CHECK(lacking(code_for("sm_90", CodeFormat::portable), "x86-64") == "that kind of processor");

    const auto avx512 = [&](bool bf16, bool fp16) {
        Artifact artifact = code_for("x86-64-avx512");
        artifact.target.cpu.avx512_bf16 = bf16;
        artifact.target.cpu.avx512_fp16 = fp16;
        return artifact;
    };
    const std::string without = to_text(avx512(false, false).target), with = to_text(avx512(true, true).target);
    CHECK(lacking(avx512(true, false), without.c_str()) == "AVX512-BF16");
    CHECK(lacking(avx512(false, true), without.c_str()) == "AVX512-FP16");
    CHECK(lacking(avx512(false, false), with.c_str()) == "");
}

TEST_CASE("a GPU runs cubins of its major version up to its minor version, and all older PTX") {
    const auto lacks = [](const char* made_for, CodeFormat format, const char* machine) {
        return lacking(artifact_for(made_for, format), machine);
    };
    CHECK(lacks("sm_80", CodeFormat::cubin, "sm_89") == "");
    CHECK(lacks("sm_89", CodeFormat::cubin, "sm_80") == "that architecture");
    CHECK(lacks("sm_80", CodeFormat::cubin, "sm_90") == "that architecture");
    CHECK(lacks("sm_80", CodeFormat::ptx, "sm_90") == "");
    CHECK(lacks("sm_90", CodeFormat::ptx, "sm_80") == "that architecture");

    Artifact large = artifact_for("sm_90", CodeFormat::cubin);
    CudaLaunch launch;
    launch.shared_bytes = large.target.cuda.shared_bytes + 1;
    large.cuda_paths.emplace_back().launches.push_back(launch);
    CHECK(lacking(large, "sm_90") == "as much shared memory for a block");
    large.cuda_paths[0].launches[0].shared_bytes -= 1;
    CHECK(lacking(large, "sm_90") == "");
}
