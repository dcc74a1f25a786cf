// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/host_target.h"

#include "normjit/engine.h"

#include <doctest/doctest.h>

using namespace normjit;

TEST_CASE("the host's target is that of a machine") {
    const auto target = host_target();
    if (!target.ok()) {
        CHECK(target.status().code() == Code::unavailable);
        MESSAGE(target.status().message());
        return;
    }
    CHECK(target->isa == Isa::x86_64_avx512);
    CHECK(target->cores >= 1);
    CHECK(target->l1_bytes >= 8 << 10);
    CHECK(target->l2_bytes >= target->l1_bytes);
    CHECK(*host_target() == *target);
    CHECK(*parse_target(to_text(*target)) == *target);
}

TEST_CASE("a machine that lacks instructions is told which") {
    cpu::Features features;
    features.avx512f = features.avx512bw = features.avx512dq = features.avx512vl = true;
    features.fma = features.f16c = features.bmi2 = features.zmm_state = true;
    CHECK(cpu::check_features(features).ok());
    features.avx512dq = features.f16c = false;
    CHECK(cpu::check_features(features).code() == Code::unavailable);
    CHECK(cpu::check_features(features).message() == "cpu: this machine lacks AVX512DQ, F16C");
    features.zmm_state = false;
    CHECK(cpu::check_features(features).message().ends_with("zmm registers enabled by the operating system"));
}

TEST_CASE("cores that a control group pays for") {
    CHECK(cpu::cores_of_quota("200000 100000") == 2);
    CHECK(cpu::cores_of_quota("150000 100000") == 2);
    CHECK(cpu::cores_of_quota("1000 100000") == 1);
    for (const char* none : {"max 100000", "-1 100000", "", "200000", "a b", "100 0"}) {
        CHECK(cpu::cores_of_quota(none) == std::nullopt);
    }
    CHECK(cpu::usable_cores() >= 1);
}
