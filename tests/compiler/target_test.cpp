// SPDX-License-Identifier: Apache-2.0
#include "normjit/target.h"

#include "mutate.h"
#include "random_spec.h"

#include <doctest/doctest.h>

namespace normjit {

namespace {

std::string answer(std::string_view text) {
    const auto target = parse_target(text);
    return target ? to_text(*target) : target.status().message();
}

}  // namespace

TEST_CASE("a text becomes the target that it describes") {
    CHECK(answer("x86-64-avx512") == "x86-64-avx512 bf16=0 fp16=0 cores=1 l1=32768 l2=1048576 l3=33554432");
    CHECK(answer("x86-64-avx512 bf16=1 l1=49152") ==
          "x86-64-avx512 bf16=1 fp16=0 cores=1 l1=49152 l2=1048576 l3=33554432");
    CHECK(answer("x86-64-v3 cores=4") == "x86-64-v3 cores=4 l1=32768 l2=1048576 l3=33554432");
    CHECK(answer("x86-64") == "x86-64 cores=1 l1=32768 l2=1048576 l3=33554432");
    CHECK(answer("aarch64 backend=llvm") == "aarch64 cores=1 l1=32768 l2=1048576 l3=33554432 backend=llvm");
    CHECK(answer("aarch64 backend=automatic") == answer("aarch64"));
    CHECK(answer("sm_90") == "sm_90 sms=132 shared=232448 l2=52428800");
    CHECK(answer("sm_90 sms=78") == "sm_90 sms=78 shared=232448 l2=52428800");
    CHECK(answer("sm_87") == answer("sm_86").replace(4, 1, "7"));

    const auto target = parse_target("sm_80 shared=1");
    REQUIRE(target.ok());
    CHECK(target->isa == Isa::cuda);
    CHECK(target->sm == 80);
    CHECK(target->sm_count == 108);
    CHECK(target->shared_bytes == 1);
}

TEST_CASE("errors name the key, the value and what is allowed") {
    CHECK(answer("") == "target: the text is empty; allowed: x86-64-avx512 x86-64-v3 x86-64 aarch64 sm_90");
    CHECK(answer("riscv") ==
          "target: kind 'riscv': allowed: x86-64-avx512 x86-64-v3 x86-64 aarch64 sm_90, or another sm_ number");
    CHECK(answer("sm_50") == "target: sm_50: the number must be at least 70");
    CHECK(answer("sm_90a") == "target: sm_90a: the number must be a whole number");
    CHECK(answer("sm_90 cores=4") == "target: unknown key 'cores'; allowed: sms shared l2");
    CHECK(answer("x86-64-avx512 bf16=yes") == "target: bf16=yes: allowed: 0 1");
    CHECK(answer("x86-64-avx512 cores=0") == "target: cores=0: must be at least 1");
    CHECK(answer("x86-64-v3 bf16=1").starts_with("target: unknown key 'bf16'"));
    CHECK(answer("x86-64 backend=xbyak") == "target: backend=xbyak: allowed: automatic x64 llvm portable");
    CHECK(answer("x86-64-avx512 l4=1") ==
          "target: unknown key 'l4'; allowed: bf16 fp16 cores l1 l2 l3 backend; did you mean 'l1'?");
}

TEST_CASE("random targets round trip through text") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(10000);
    for (int64_t i = 0; i < count; ++i) {
        const Target target = test::random_target(random);
        const std::string text = to_text(target);
        CAPTURE(text);
        const auto back = parse_target(text);
        REQUIRE(back.status().message() == "");
        REQUIRE(*back == target);
        REQUIRE(hash(*back) == hash(target));
        const auto damaged = parse_target(test::mutate(random, text));
        REQUIRE((damaged.ok() || damaged.status().message().starts_with("target: ")));
    }
}

}  // namespace normjit
