// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/perf_map.h"

#include "normjit/engine.h"

#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

using namespace normjit;

TEST_CASE("the map for perf has a line for each function, and covers the code") {
    Artifact artifact;
    artifact.spec = *parse_spec("layernorm cols=64 x=bf16");
    artifact.entries = {{"final_reduce", 128}, {"rows", 0}};
    artifact.code.resize(200);
    const std::string path = fmt::format("/tmp/perf-{}.map", getpid());
    unlink(path.c_str());
    cpu::write_perf_map(artifact, reinterpret_cast<const void*>(uintptr_t{0x1000}));
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    unlink(path.c_str());
    CHECK(text.str() ==
          "1000 80 normjit_layernorm_backward_bf16_64_rows\n"
          "1080 48 normjit_layernorm_backward_bf16_64_final_reduce\n");
}
