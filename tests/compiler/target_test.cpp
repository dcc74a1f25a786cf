// SPDX-License-Identifier: Apache-2.0
#include "normjit/target.h"

#include "mutate.h"
#include "random_spec.h"

#include "normjit/compile.h"
#include "normjit/schedule.h"

#include <doctest/doctest.h>

namespace normjit {

namespace {

std::string read_target(std::string_view text) {
    const auto target = parse_target(text);
    return target ? to_text(*target) : target.status().message();
}

}  // namespace

TEST_CASE("a text becomes the target that it describes") {
    CHECK(read_target("x86-64-avx512") == "x86-64-avx512 bf16=0 fp16=0 cores=1 l1=32768 l2=1048576 l3=33554432");
    CHECK(read_target("x86-64-avx512 bf16=1 l1=49152") ==
          "x86-64-avx512 bf16=1 fp16=0 cores=1 l1=49152 l2=1048576 l3=33554432");
    CHECK(read_target("x86-64-avx512 tune=zen4").starts_with("x86-64-avx512 bf16=0 fp16=0 tune=zen4 cores=1 "));
    CHECK(read_target("x86-64-avx512 tune=generic") == read_target("x86-64-avx512"));
    CHECK(read_target("x86-64-v3 cores=4") == "x86-64-v3 cores=4 l1=32768 l2=1048576 l3=33554432");
    CHECK(read_target("x86-64") == "x86-64 cores=1 l1=32768 l2=1048576 l3=33554432");
    CHECK(read_target("aarch64 backend=llvm") == "aarch64 cores=1 l1=32768 l2=1048576 l3=33554432 backend=llvm");
    CHECK(read_target("aarch64 backend=automatic") == read_target("aarch64"));
    CHECK(read_target("sm_90") == "sm_90 sms=132 shared=232448 l2=52428800");
    CHECK(read_target("sm_90 sms=78") == "sm_90 sms=78 shared=232448 l2=52428800");
    CHECK(read_target("sm_87") == read_target("sm_86").replace(4, 1, "7"));

    const auto target = parse_target("sm_80 shared=49152");
    REQUIRE(target.ok());
    CHECK(target->isa == Isa::cuda);
    CHECK(target->cuda.sm == 80);
    CHECK(target->cuda.sm_count == 108);
    CHECK(target->cuda.shared_bytes == 48 << 10);
}

TEST_CASE("errors name the key, the value and what is allowed") {
    CHECK(read_target("") == "target: the text is empty; allowed: x86-64-avx512 x86-64-v3 x86-64 aarch64 sm_90");
    CHECK(read_target("riscv") ==
          "target: kind 'riscv': allowed: x86-64-avx512 x86-64-v3 x86-64 aarch64 sm_90, or another sm_ number");
    CHECK(read_target("sm_50") == "target: sm_50: the number must be at least 70");
    CHECK(read_target("sm_90a") == "target: sm_90a: the number must be a whole number");
    CHECK(read_target("sm_90 cores=4") == "target: unknown key 'cores'; allowed: sms shared l2");
    CHECK(read_target("x86-64-avx512 bf16=yes") == "target: bf16=yes: allowed: 0 1");
    CHECK(read_target("x86-64-avx512 cores=0") == "target: cores=0: must be at least 1");
    CHECK(read_target("x86-64-v3 bf16=1").starts_with("target: unknown key 'bf16'"));
    CHECK(read_target("x86-64 backend=xbyak") == "target: backend=xbyak: allowed: automatic x64 llvm portable");
    CHECK(read_target("x86-64-avx512 l4=1") ==
          "target: unknown key 'l4'; allowed: bf16 fp16 tune cores l1 l2 l3 backend; did you mean 'l1'?");
}

TEST_CASE("no machine is larger than any that could be made") {
    CHECK(read_target("x86-64 cores=65536 l1=1099511627776 l2=1099511627776 l3=1099511627776")
              .starts_with("x86-64 cores"));
    CHECK(read_target("x86-64-avx512 cores=2147483647") == "target: cores=2147483647: must be at most 65536");
    CHECK(read_target("x86-64 l2=9223372036854775807") ==
          "target: l2=9223372036854775807: must be at most 1099511627776");
    CHECK(read_target("x86-64 l3=-1") == "target: l3=-1: must be at least 0");
    CHECK(read_target("sm_90 shared=0") == "target: shared=0: must be at least 49152");
    CHECK(read_target("sm_90 shared=9223372036854775807") ==
          "target: shared=9223372036854775807: must be at most 1048576");
    CHECK(read_target("sm_90 sms=65537") == "target: sms=65537: must be at most 65536");
    CHECK(read_target("sm_90 l2=1099511627777") == "target: l2=1099511627777: must be at most 1099511627776");
}

TEST_CASE("a target struct is checked like its text") {
    const Spec spec = *parse_spec("rmsnorm cols=64");
    const auto refusal = [&](const char* text, auto change) {
        const Target good = *parse_target(text);
        Target target = good;
        change(target);
        const std::string message = validate(target).message();
        const Schedule schedule = heuristic(spec, good);
        CHECK(compile(spec, schedule, target).status().message() == message);
        CHECK(emit_stage(spec, schedule, target, "plan").status().message() == message);
        return message;
    };
    for (const char* text : {"x86-64-avx512", "x86-64", "aarch64", "sm_90"}) CHECK(validate(*parse_target(text)).ok());
    CHECK(refusal("x86-64-avx512", [](Target& t) { t.cpu.cores = 0; }) == "target: cores=0: must be 1 to 65536");
    CHECK(refusal("x86-64", [](Target& t) { t.cpu.l1_bytes = -1; }) == "target: l1=-1: must be 0 to 1099511627776");
    CHECK(refusal("sm_90", [](Target& t) { t.cuda.shared_bytes = 0; }) == "target: shared=0: must be 49152 to 1048576");
    CHECK(refusal("sm_90", [](Target& t) { t.cuda.sm_count = 0; }) == "target: sms=0: must be 1 to 65536");
    CHECK(refusal("sm_90", [](Target& t) { t.cuda.sm = 20; }) == "target: sm_20: the number must be 70 to 999");
    CHECK(refusal("aarch64", [](Target& t) { t.cpu.avx512_bf16 = true; }) ==
          "target: bf16=1: only x86-64-avx512 has it");
    CHECK(refusal("x86-64", [](Target& t) { t.cpu.tune = Tune::zen4; }) ==
          "target: tune=zen4: only x86-64-avx512 has it");
}

TEST_CASE("the heuristic's schedule is legal on the largest and the smallest machine") {
    const char* targets[] = {"x86-64-avx512 cores=65536 l1=0 l2=0 l3=0",
                             "x86-64-avx512 cores=65536 l1=1099511627776 l2=1099511627776 l3=1099511627776",
                             "x86-64 cores=1 l1=0 l2=0 l3=0",
                             "sm_80 sms=65536 shared=49152 l2=0",
                             "sm_90 sms=65536 shared=1048576 l2=1099511627776",
                             "sm_90 sms=1 shared=49152"};
    for (const char* text : targets) {
        const Target target = *parse_target(text);
        for (const char* spec_text : {"rmsnorm cols=1", "layernorm cols=64", "layernorm cols=100000 x=bf16 gamma=f32",
                                      "layernorm rows=4 cols=4096 x=f64"}) {
            const Spec spec = *parse_spec(spec_text);
            CAPTURE(text);
            CAPTURE(spec_text);
            CHECK(legality(spec, heuristic(spec, target), target).message() == "");
        }
    }
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
