// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/executable_memory.h"

#include "normjit/engine.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>

#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using normjit::cpu::ExecutableMemory;

namespace {

using Function = int (*)();

// mov eax, 42; ret; mov eax, 7; ret
constexpr uint8_t code[] = {0xb8, 42, 0, 0, 0, 0xc3, 0xb8, 7, 0, 0, 0, 0xc3};

/// Returns "r-xp" for pages that may be read and executed; "" for addresses that are not mapped.
std::string permissions(Function function) {
    const auto address = reinterpret_cast<uintptr_t>(function);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        uintptr_t begin = 0, end = 0;
        char mode[5] = {};
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, mode) != 3) continue;
        if (begin <= address && address < end) return mode;
    }
    return {};
}

}  // namespace

#ifdef __x86_64__
TEST_CASE("code runs, and nobody may write it") {
    Function first = nullptr;
    {
        auto made = ExecutableMemory::make(code);
        REQUIRE(made.ok());
        first = made->function<Function>(0);
        CHECK(first() == 42);
        CHECK(made->function<Function>(6)() == 7);
        CHECK(permissions(first) == "r-xp");

        ExecutableMemory moved = std::move(*made);
        CHECK(moved.function<Function>(0)() == 42);
        auto other = ExecutableMemory::make(std::span(code).subspan(6));
        moved = std::move(*other);
        CHECK(moved.function<Function>(0)() == 7);
    }
    CHECK(permissions(first) != "r-xp");
}
#endif

#ifdef __x86_64__
TEST_CASE("if a process forbids itself new code, its old code runs on, and new engines make none") {
    constexpr int set_mdwe = 65, refuse_exec_gain = 1;  // in <sys/prctl.h> since Linux 6.3
    constexpr int forbids_nothing = 77;
    const auto old = ExecutableMemory::make(code);
    REQUIRE(old.ok());
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (prctl(set_mdwe, refuse_exec_gain, 0, 0, 0) != 0) _exit(forbids_nothing);
        const normjit::Status status = ExecutableMemory::make(code).status();
        const bool is_told = status.code() == normjit::Code::unavailable &&
                             status.message() ==
                                 "load: this process may not run machine code that it makes (mprotect: Permission "
                                 "denied); kernels from before go on, and a new engine evaluates formulas";
        const auto engine = normjit::Engine::create({.threads = 1, .cache = {.folder = ""}});
        const bool evaluates = engine.ok() && engine->target().cpu.backend == normjit::BackendChoice::portable;
        _exit(is_told && evaluates && old->function<Function>(0)() == 42 ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == forbids_nothing) {
        MESSAGE("this system cannot forbid it");
    } else {
        CHECK(WEXITSTATUS(status) == 0);
    }
}
#endif

TEST_CASE("to ask whether made code may run leaves no page behind") {
    const auto mapped_pages = [] {
        int64_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        return pages;
    };
    constexpr int times = 1000;
    const int64_t before = mapped_pages();
    for (int i = 0; i < times; ++i) std::ignore = normjit::cpu::can_run_made_code();
    CHECK(mapped_pages() - before < times);
}

TEST_CASE("empty code takes no memory") { CHECK(ExecutableMemory::make({}).status().code() == normjit::Code::failed); }
