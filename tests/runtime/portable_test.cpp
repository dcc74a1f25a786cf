// SPDX-License-Identifier: Apache-2.0
#include "backend/portable/program.h"

#include "normjit/compile.h"
#include "normjit/engine.h"
#include "normjit/serialise.h"

#include <doctest/doctest.h>

using namespace normjit;

namespace {

Artifact portable_artifact() {
    const Spec spec = *parse_spec("layernorm cols=100 x=bf16 gamma=f32");
    const Target target = *parse_target("x86-64 backend=portable");
    return *compile(spec, heuristic(spec, target), target);
}

Artifact with_formula(Artifact artifact, const std::string& from, const std::string& to) {
    std::string text(artifact.code.begin(), artifact.code.end());
    const size_t at = text.find(from);
    REQUIRE(at != text.npos);
    text.replace(at, from.size(), to);
    artifact.code.assign(text.begin(), text.end());
    return artifact;
}

}  // namespace

TEST_CASE("a portable artifact says so, carries its formula and survives its text form") {
    const Artifact artifact = portable_artifact();
    CHECK(artifact.format == CodeFormat::portable);
    CHECK(serialise(artifact).find("\ncode portable ") != std::string::npos);
    CHECK(std::string(artifact.code.begin(), artifact.code.end()).starts_with("norm cols=100 compute=f32"));
    CHECK(*parse_artifact(serialise(artifact)) == artifact);
}

TEST_CASE("a portable artifact runs on any processor, even one it was not made for") {
    const auto engine = Engine::create({.threads = 1});
    REQUIRE(engine.ok());
    Artifact artifact = portable_artifact();
    CHECK(engine->load(artifact).ok());
    artifact.target = *parse_target("aarch64 backend=portable");
    CHECK(engine->load(artifact).ok());
}

TEST_CASE("a formula that is damaged or belongs to another spec is refused") {
    const auto refusal = [](const Artifact& artifact) { return PortableProgram::make(artifact).status(); };
    const Artifact artifact = portable_artifact();
    CHECK(refusal(artifact).ok());
    CHECK(refusal(with_formula(artifact, "cols=100", "cols=101")).code() == Code::invalid_argument);
    CHECK(refusal(with_formula(artifact, "gamma: f32", "gamma: f16")).code() == Code::invalid_argument);
    CHECK(refusal(with_formula(artifact, "row_mean", "row_sum")).code() == Code::invalid_argument);
    const std::string deep(20'000, '(');
    CHECK(refusal(with_formula(artifact, "row_mean(", "row_mean(" + deep)).code() == Code::invalid_argument);
    Artifact other = artifact;
    other.geometry.partial_cols *= 2;
    CHECK(refusal(other).code() == Code::invalid_argument);
    other = artifact;
    other.format = CodeFormat::x86_64;
    CHECK(refusal(other).code() == Code::invalid_argument);
}
