// SPDX-License-Identifier: Apache-2.0
// Checks code for processors that this machine may not have. The code never runs.
#include "random_spec.h"

#include "normjit/compile.h"
#include "normjit/serialise.h"

#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;

namespace {

constexpr const char* targets[] = {"x86-64-avx512 bf16=1", "x86-64-avx512", "x86-64-v3", "x86-64", "aarch64"};

Target llvm_target(const char* text) { return *parse_target(std::string(text) + " backend=llvm"); }

bool has_llvm() {
    const auto backend = backend_of(llvm_target("x86-64"));
    if (!backend) MESSAGE("skipped: ", backend.status().message());
    return backend.ok();
}

Expected<Artifact> compile_text(const char* target_text, const std::string& spec_text) {
    const Target target = llvm_target(target_text);
    const auto spec = parse_spec(spec_text);
    if (!spec) return spec.status();
    return compile(*spec, heuristic(*spec, target), target);
}

/// Counts the lines of the listing that contain the text.
int count(const Artifact& artifact, const char* text) {
    const std::string listing = *list_instructions(artifact);
    int found = 0;
    for (size_t at = listing.find(text); at != listing.npos; at = listing.find(text, at + 1)) ++found;
    return found;
}

/// Counts the instructions of the listing that move vectors of AArch64 to or from the stack.
int count_spills(const Artifact& artifact) {
    std::istringstream listing(*list_instructions(artifact));
    int found = 0;
    for (std::string line; std::getline(listing, line);)
        if (line.find("\tq") != line.npos && line.find("[sp") != line.npos) ++found;
    return found;
}

}  // namespace

TEST_CASE("every processor and type compiles to code that refers to nothing outside") {
    if (!has_llvm()) return;
    for (const char* target : targets) {
        for (const DType x : layer_dtypes) {
            for (const char* rest : {"", " stats=recompute", " source=y", " gamma=none"}) {
                const std::string text = fmt::format("layernorm cols=77 x={}{}", name(x), rest);
                CAPTURE(target);
                CAPTURE(text);
                const auto artifact = compile_text(target, text);
                REQUIRE_MESSAGE(artifact.ok(), artifact.status().message());
                const bool arm = artifact->target.isa == Isa::aarch64;
                CHECK(artifact->format == (arm ? CodeFormat::aarch64 : CodeFormat::x86_64));
                CHECK(artifact->find("rows") != nullptr);
                CHECK(*parse_artifact(serialise(*artifact)) == *artifact);
            }
        }
    }
}

TEST_CASE("random problems compile for every processor, with random schedules") {
    if (!has_llvm()) return;
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(40); ++i) {
        const Target target = llvm_target(random.pick({"x86-64-avx512", "x86-64-v3", "x86-64", "aarch64"}));
        const Spec spec = test::random_spec(random);
        CAPTURE(to_text(spec));
        CAPTURE(to_text(target));
        const auto artifact = compile(spec, heuristic(spec, target), target);
        REQUIRE_MESSAGE(artifact.ok(), artifact.status().message());
    }
}

TEST_CASE("the same input gives the same bytes") {
    if (!has_llvm()) return;
    for (const char* target : targets) {
        const std::string spec = "layernorm cols=1000 x=bf16 gamma=f32";
        CHECK(*compile_text(target, spec) == *compile_text(target, spec));
    }
}

TEST_CASE("code uses the vectors of its processor, and no other's") {
    if (!has_llvm()) return;
    const std::string f32 = "rmsnorm cols=4096 x=f32", bf16 = "rmsnorm cols=4096 x=bf16",
                      f16 = "rmsnorm cols=4096 x=f16";
    CHECK(count(*compile_text("x86-64-avx512", f32), "zmm") > 0);
    CHECK(count(*compile_text("x86-64-avx512 bf16=1", bf16), "vcvtne2ps2bf16") > 0);
    CHECK(count(*compile_text("x86-64-avx512", bf16), "vcvtne") == 0);
    const auto v3 = compile_text("x86-64-v3", f16);
    CHECK(count(*v3, "zmm") == 0);
    CHECK(count(*v3, "ymm") > 0);
    CHECK(count(*v3, "vfmadd") > 0);
    CHECK(count(*v3, "vcvtph2ps") > 0);
    const auto sse = compile_text("x86-64", f16);
    CHECK(count(*sse, "ymm") == 0);
    CHECK(count(*sse, "\tv") == 0);  // every AVX instruction starts with v
    CHECK(count(*sse, "mulps") > 0);
    const auto arm = compile_text("aarch64", f16);
    CHECK(count(*arm, "fmla\tv") > 0);
    CHECK(count(*arm, "fcvtl") > 0);
}

TEST_CASE("on AArch64 the vectors of a strip stay in registers") {
    if (!has_llvm()) return;
    for (const int cols : {4096, 16384}) {
        CAPTURE(cols);
        const auto artifact = compile_text("aarch64", fmt::format("rmsnorm cols={} x=bf16", cols));
        REQUIRE_MESSAGE(artifact.ok(), artifact.status().message());
        CHECK(count(*artifact, "\tq") > 0);
        CHECK(count_spills(*artifact) <= 4);  // in the order for LLVM's generic processor, 23 and more
    }
}

TEST_CASE("a schedule that needs more registers than there are is refused, one unit never") {
    if (!has_llvm()) return;
    const auto legal = [](const char* target, const char* schedule) {
        return legality(*parse_spec("layernorm cols=4096 x=bf16"), *parse_schedule(schedule), llvm_target(target));
    };
    CHECK(legal("x86-64-v3", "cpu strip=1 unroll=1").ok());
    CHECK(legal("x86-64-v3", "cpu strip=8").message().starts_with("schedule: strip=8: this spec then needs"));
    CHECK(legal("aarch64", "cpu strip=2 unroll=2").ok());
}

TEST_CASE("a formula that is too long with its functions expanded is refused with that reason") {
    if (!has_llvm()) return;
    std::string sum = "x";
    for (int i = 1; i < 240; ++i) sum += fmt::format(" + gelu(x * {})", i);
    const auto artifact = compile_text("x86-64-v3", "norm f(x[M,N]) -> y[M,N] { y = " + sum + " } pass=forward cols=8");
    REQUIRE(!artifact.ok());
    CHECK(artifact.status().message().starts_with("llvm: this formula is too long with its functions expanded ("));
}

TEST_CASE("back ends are requested by name") {
    const auto backend = [](const char* target) {
        const auto found = backend_of(*parse_target(target));
        return found ? *found : found.status().message();
    };
    CHECK(backend("x86-64-avx512") == "x64");
    CHECK(backend("x86-64-avx512 backend=portable") == "portable");
    CHECK(backend("aarch64 backend=x64").starts_with("no back end for target 'aarch64"));
    CHECK(backend("sm_90") == "cuda");
    CHECK(backend("x86-64-v3") == (has_llvm() ? backend("x86-64-v3 backend=llvm") : "portable"));
}
