// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/perf_map.h"

#include "normjit/engine.h"

#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace normjit;

namespace {

struct Map {
    Map() {
        artifact.spec = *parse_spec("layernorm cols=64 x=bf16");
        artifact.entries = {{"final_reduce", 128}, {"rows", 0}};
        artifact.code.resize(200);
        unlink(path.c_str());
    }
    ~Map() { unlink(path.c_str()); }
    void write() const { cpu::write_perf_map(artifact, reinterpret_cast<const void*>(uintptr_t{0x1000})); }
    std::string text() const {
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }

    const std::string path = fmt::format("/tmp/perf-{}.map", getpid());
    Artifact artifact;
};

constexpr const char* its_lines =
    "1000 80 normjit_layernorm_backward_bf16_64_rows\n"
    "1080 48 normjit_layernorm_backward_bf16_64_final_reduce\n";

}  // namespace

TEST_CASE("the map for perf has a line for each function, and covers the code") {
    const Map map;
    map.write();
    CHECK(map.text() == its_lines);
    map.write();
    CHECK(map.text() == std::string(its_lines) + its_lines);
}

TEST_CASE("a map for perf at the file size limit of the process raises no signal") {
    const Map map;
    struct rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    struct rlimit none = before;
    none.rlim_cur = 0;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
    map.write();
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(map.text().empty());
}

TEST_CASE("a pipe in place of the map for perf holds nobody up") {
    const Map map;
    REQUIRE(mkfifo(map.path.c_str(), 0600) == 0);
    map.write();
}

TEST_CASE("a link in place of the map for perf is not followed") {
    const Map map;
    const std::string target = map.path + ".target";
    REQUIRE(symlink(target.c_str(), map.path.c_str()) == 0);
    map.write();
    CHECK(access(target.c_str(), F_OK) != 0);
    unlink(target.c_str());
}
