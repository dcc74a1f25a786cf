// SPDX-License-Identifier: Apache-2.0
// Tests what tells cached code apart: keys, checksums of artifacts, and hashes of specs.
#include "cache/request.h"
#include "made_artifact.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <set>
#include <string>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::cache;
using namespace normjit::test;

TEST_CASE("a key contains everything that the code depends on") {
    const Spec spec = *parse_spec("rmsnorm cols=40");
    const Target target = *parse_target("x86-64-avx512");
    const Schedule schedule = heuristic(spec, target);
    const std::string key = code_key(spec, schedule, target);
    for (const std::string& part : {to_text(spec), to_text(schedule), to_text(target), std::string(" x64")}) {
        CHECK(key.find(part) != key.npos);
    }
    CHECK(key.find("\ngenerator " + std::to_string(generator_version) + " ") != key.npos);
    CHECK(std::ranges::count(key, '\n') == 5);
    CHECK(code_key(*compile(spec, schedule, target)) == key);
    CHECK(code_key(*parse_spec("rmsnorm cols=41"), schedule, target) != key);
    CHECK(code_key(spec, *parse_schedule("cpu row_groups=7"), target) != key);
    CHECK(code_key(spec, schedule, *parse_target("x86-64-avx512 l2=1")) != key);
    CHECK(code_key(spec, schedule, *parse_target("x86-64-avx512 backend=portable")) != key);
}

TEST_CASE("every byte changed, every end cut off, anything added: no artifact") {
    const std::string good = serialise(made("rmsnorm cols=8 out=dx"));
    REQUIRE(parse_artifact(good).ok());
    int taken = 0;
    for (size_t i = 0; i < good.size(); ++i) {
        for (const int flip : {0x01, 0x20, 0xff}) {
            std::string bad = good;
            bad[i] = static_cast<char>(bad[i] ^ flip);
            taken += parse_artifact(bad).ok();
        }
        taken += parse_artifact(std::string_view(good).substr(0, i)).ok();
    }
    for (const char* more : {"\n", " ", "x", "checksum"}) taken += parse_artifact(good + more).ok();
    taken += parse_artifact(good + good).ok();
    CHECK(taken == 0);
}

TEST_CASE("specs that differ in a number or in the formula have different hashes") {
    const std::string scaled = "norm f(x[M,N]) -> y[M,N] { y = x * factor }",
                      shifted = "norm f(x[M,N]) -> y[M,N] { y = x + factor }";
    std::set<size_t> hashes;
    for (int i = 1; i <= 100; ++i) {
        const std::string number = std::to_string(i);
        for (const std::string& text :
             {"rmsnorm cols=8 stats=recompute eps=" + number, "rmsnorm cols=8 x=f32 gamma=f32 gamma_offset=" + number,
              scaled + " cols=8 pass=forward factor=" + number, shifted + " cols=8 pass=forward factor=" + number}) {
            const auto parsed = parse_spec(text);
            REQUIRE(parsed.ok());
            hashes.insert(cache::RequestHash()({*parsed, {}}));
        }
    }
    CHECK(hashes.size() == 400);
}
