// SPDX-License-Identifier: Apache-2.0
#include "tune/compilers.h"

#include "normjit/compile.h"
#include "normjit/serialise.h"
#include "normjit/space.h"

#include <csignal>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::cli::tune;

namespace {

const Spec& spec() {
    static const Spec spec = *parse_spec("layernorm rows=512 cols=512");
    return spec;
}
const Target& target() {
    static const Target target = *parse_target("x86-64-avx512 cores=4");
    return target;
}
std::string compiled_here(const Spec& of, const std::string& schedule) {
    return serialise(*normjit::compile(of, *parse_schedule(schedule), target()));
}

}  // namespace

TEST_CASE("processes compile the same as this one, in any order of requests") {
    const ScheduleSpace space(spec(), target());
    std::vector<std::string> schedules;
    for (const Schedule& each : space.neighbours(space.start())) schedules.push_back(to_text(each));
    REQUIRE(schedules.size() >= 6);
    for (const size_t count : {0, 1, 3}) {
        CAPTURE(count);
        auto compilers = Compilers::start(count);
        REQUIRE(compilers.status().message() == "");
        compilers->open(spec(), target());
        for (size_t i = 0; i < 4; ++i) compilers->ask(schedules[i]);
        for (const size_t i : {3, 0, 5, 5, 1}) {
            const auto artifact = compilers->take(schedules[i]);
            REQUIRE(artifact.status().message() == "");
            CHECK(serialise(*artifact) == compiled_here(spec(), schedules[i]));
        }
        CHECK(!compilers->are_gone());
        // The results of the last problem have not arrived yet.
        const Spec other = *parse_spec("rmsnorm rows=512 cols=512");
        for (const std::string& each : schedules) compilers->ask(each);
        compilers->step();
        compilers->open(other, target());
        CHECK(serialise(*compilers->take(schedules[0])) == compiled_here(other, schedules[0]));
    }
}

TEST_CASE("a failed compilation gives a reason, and the process goes on") {
    auto compilers = Compilers::start(1);
    REQUIRE(compilers.ok());
    compilers->open(spec(), target());
    CHECK(compilers->take("cpu row_block=x").status().message().starts_with("schedule: "));
    CHECK(compilers->take(to_text(heuristic(spec(), target()))).ok());
}

TEST_CASE("a process that dies loses only its current work; without processes nothing is compiled") {
    auto compilers = Compilers::start(2);
    REQUIRE(compilers.ok());
    compilers->open(spec(), target());
    const std::string schedule = to_text(heuristic(spec(), target()));
    for (const pid_t process : compilers->processes()) kill(process, SIGKILL);
    CHECK(compilers->take(schedule).status().message() == "its compiler's process ended: signal 9 (Killed)");
    CHECK(!compilers->are_gone());
    CHECK(compilers->take(schedule).status().message() == "its compiler's process ended: signal 9 (Killed)");
    CHECK(compilers->are_gone());
    CHECK(compilers->take(schedule).status().message() == "all processes that compile have ended");
}
