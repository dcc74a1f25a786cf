// SPDX-License-Identifier: Apache-2.0
#include "system/environment.h"

#include <map>
#include <string>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

std::map<std::string, std::string> variables;

Expected<Environment> read(std::map<std::string, std::string> given) {
    variables = std::move(given);
    return read_environment([](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

std::string folder(std::map<std::string, std::string> given) { return read(std::move(given))->cache_folder; }

}  // namespace

TEST_CASE("the cache folder: its own variable, then XDG's, then the home folder") {
    CHECK(folder({}) == "");
    CHECK(folder({{"HOME", "/home/ada"}}) == "/home/ada/.cache/normjit");
    CHECK(folder({{"HOME", "/home/ada"}, {"XDG_CACHE_HOME", "/fast"}}) == "/fast/normjit");
    CHECK(folder({{"HOME", "/home/ada"}, {"XDG_CACHE_HOME", "relative"}}) == "/home/ada/.cache/normjit");
    CHECK(folder({{"HOME", "/home/ada"}, {"XDG_CACHE_HOME", ""}}) == "/home/ada/.cache/normjit");
    CHECK(folder({{"XDG_CACHE_HOME", "/fast"}, {"NORMJIT_CACHE_DIR", "here"}}) == "here");
    CHECK(folder({{"HOME", "/home/ada"}, {"NORMJIT_CACHE_DIR", "off"}}) == "");
    CHECK(folder({{"HOME", "/home/ada"}, {"NORMJIT_CACHE_DIR", ""}}) == "/home/ada/.cache/normjit");
}

TEST_CASE("the variable that caps the instructions of CPU code") {
    CHECK(read({})->isa == IsaCap::machine);
    CHECK(read({{"NORMJIT_ISA", "avx2"}})->isa == IsaCap::avx2);
    CHECK(read({{"NORMJIT_ISA", "portable"}})->isa == IsaCap::portable);
    CHECK(read({{"NORMJIT_ISA", "avx"}}).status().message() ==
          "NORMJIT_ISA=avx: allowed: machine avx512 avx2 sse portable");
}

TEST_CASE("the variable that chooses the threads of CPU launches") {
    CHECK(read({})->thread_policy == ThreadPolicy::automatic);
    CHECK(read({{"NORMJIT_THREADS", "own"}})->thread_policy == ThreadPolicy::own);
    CHECK(read({{"NORMJIT_THREADS", "openmp"}})->thread_policy == ThreadPolicy::openmp);
    CHECK(read({{"NORMJIT_THREADS", "4"}}).status().message() == "NORMJIT_THREADS=4: allowed: automatic own openmp");
}

TEST_CASE("names for perf") {
    CHECK_FALSE(read({})->perf_map);
    CHECK(read({{"NORMJIT_PERF", "map"}})->perf_map);
    CHECK(read({{"NORMJIT_PERF", "yes"}}).status().message() == "NORMJIT_PERF=yes: allowed: map off");
}

TEST_CASE("sizes have units") {
    const auto bytes = [](const char* text) { return read({{"NORMJIT_CACHE_SIZE", text}})->cache_bytes; };
    CHECK(read({})->cache_bytes == int64_t{1} << 30);
    CHECK(bytes("1") == 1);
    CHECK(bytes("3K") == 3 << 10);
    CHECK(bytes("512M") == 512 << 20);
    CHECK(bytes("20G") == int64_t{20} << 30);
    for (const char* wrong : {"0", "-1", "G", "1T", "1.5G", "9000000000G", "1 G", " "}) {
        const auto refused = read({{"NORMJIT_CACHE_SIZE", wrong}});
        CHECK(refused.status().code() == Code::invalid_argument);
        CHECK(refused.status().message() ==
              std::string("NORMJIT_CACHE_SIZE=") + wrong +
                  ": must be a whole number of bytes, at least 1, or one such as 64K, 512M or 2G");
    }
}

TEST_CASE("switches are 0 or 1") {
    CHECK(!read({})->cache_everything);
    CHECK(!read({})->cache_trust_others);
    CHECK(!read({})->nvtx);
    CHECK(read({{"NORMJIT_NVTX", "1"}})->nvtx);
    CHECK(read({{"NORMJIT_CACHE_TRUST_OTHERS", "1"}})->cache_trust_others);
    CHECK(read({{"NORMJIT_CACHE_EVERYTHING", "1"}})->cache_everything);
    CHECK(read({{"NORMJIT_CACHE_EVERYTHING", "yes"}}).status().message() ==
          "NORMJIT_CACHE_EVERYTHING=yes: must be 0 or 1");
}

TEST_CASE("an engine's memory of kernels has limits") {
    CHECK(read({})->most_kernels == 4096);
    CHECK(read({{"NORMJIT_KERNELS", "7"}})->most_kernels == 7);
    CHECK(read({{"NORMJIT_KERNELS", "0"}}).status().message() == "NORMJIT_KERNELS=0: must be at least 1");
    CHECK(read({})->most_kernel_bytes == 256 << 20);
    CHECK(read({{"NORMJIT_KERNEL_BYTES", "1G"}})->most_kernel_bytes == 1 << 30);
}

TEST_CASE("packs are separated by colons") {
    CHECK(read({})->cache_packs.empty());
    CHECK(read({{"NORMJIT_CACHE_PACKS", ":a:/b/c.pack::"}})->cache_packs == std::vector<std::string>{"a", "/b/c.pack"});
}

TEST_CASE("every variable has the project's prefix and a meaning") {
    for (const EnvironmentVariable& variable : environment_variables()) {
        CHECK(std::string(variable.name).starts_with("NORMJIT_"));
        CHECK(std::string(variable.meaning).size() > 10);
    }
}
