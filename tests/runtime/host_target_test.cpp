// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/host_target.h"

#include "normjit/engine.h"

#include <doctest/doctest.h>

using namespace normjit;

TEST_CASE("the host's target is valid") {
    const auto target = host_target();
    REQUIRE_MESSAGE(target.ok(), target.status().message());
    CHECK(target->cpu.cores >= 1);
    CHECK(target->cpu.l1_bytes >= 8 << 10);
    CHECK(target->cpu.l2_bytes >= target->cpu.l1_bytes);
    CHECK(*host_target() == *target);
    CHECK(*parse_target(to_text(*target)) == *target);
}

namespace {

cpu::Features avx512_machine() {
    cpu::Features features;
    features.avx512f = features.avx512bw = features.avx512dq = features.avx512vl = features.zmm_state = true;
    features.avx2 = features.fma = features.f16c = features.bmi2 = features.ymm_state = true;
    return features;
}

}  // namespace

TEST_CASE("the best instructions that the machine has and the cap allows") {
    cpu::Features features = avx512_machine();
    CHECK(cpu::best_isa(features, IsaCap::machine) == Isa::x86_64_avx512);
    CHECK(cpu::best_isa(features, IsaCap::portable) == Isa::x86_64_avx512);
    CHECK(cpu::best_isa(features, IsaCap::avx512) == Isa::x86_64_avx512);
    CHECK(cpu::best_isa(features, IsaCap::avx2) == Isa::x86_64_v3);
    CHECK(cpu::best_isa(features, IsaCap::sse) == Isa::x86_64);
    features.zmm_state = false;
    CHECK(cpu::best_isa(features, IsaCap::machine) == Isa::x86_64_v3);
    features.f16c = false;
    CHECK(cpu::best_isa(features, IsaCap::machine) == Isa::x86_64);
    CHECK(cpu::best_isa({}, IsaCap::avx512) == Isa::x86_64);
}

TEST_CASE("a refusal names the instructions that the machine lacks") {
    using Names = std::vector<std::string_view>;
    cpu::Features features = avx512_machine();
    CHECK(cpu::missing(features, Isa::x86_64_avx512).empty());
    features.avx512dq = features.f16c = false;
    CHECK(cpu::missing(features, Isa::x86_64_avx512) == Names{"AVX512DQ", "F16C"});
    CHECK(cpu::missing(features, Isa::x86_64_v3) == Names{"F16C"});
    CHECK(cpu::missing(features, Isa::x86_64).empty());
}

TEST_CASE("a cap takes instructions away, and its engine says so") {
    const auto machine = host_target(IsaCap::machine);
    const auto portable = host_target(IsaCap::portable);
    REQUIRE(machine.ok());
    CHECK(portable->cpu.backend == BackendChoice::portable);
    CHECK(portable->isa == machine->isa);
    const auto engine = Engine::create({.isa = IsaCap::sse});
    REQUIRE(engine.ok());
    CHECK(engine->target() == *host_target(IsaCap::sse));
    CHECK(engine->target().cpu.avx512_bf16 == false);
}

TEST_CASE("a process may use at least one core") { CHECK(cpu::usable_cores() >= 1); }
