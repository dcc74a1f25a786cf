// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/jit_symbols.h"

#include "normjit/engine.h"

#include <cstring>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

using namespace normjit;

namespace {

Artifact small_artifact() {
    Artifact artifact;
    artifact.spec = *parse_spec("layernorm cols=64 x=bf16");
    artifact.entries = {{"final_reduce", 128}, {"rows", 0}};
    artifact.code.resize(200);
    return artifact;
}

}  // namespace

TEST_CASE("symbols name the spec and the function, and cover the code") {
    const auto symbols = cpu::jit_symbols(small_artifact());
    REQUIRE(symbols.size() == 2);
    CHECK(symbols[0].name == "normjit_layernorm_backward_bf16_64_rows");
    CHECK(symbols[0].offset == 0);
    CHECK(symbols[0].bytes == 128);
    CHECK(symbols[1].name == "normjit_layernorm_backward_bf16_64_final_reduce");
    CHECK(symbols[1].bytes == 72);
}

TEST_CASE("the map for perf has a line for each function") {
    const auto symbols = cpu::jit_symbols(small_artifact());
    const std::string path = fmt::format("/tmp/perf-{}.map", getpid());
    unlink(path.c_str());
    cpu::write_perf_map(reinterpret_cast<const void*>(uintptr_t{0x1000}), symbols);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    unlink(path.c_str());
    CHECK(text.str() ==
          "1000 80 normjit_layernorm_backward_bf16_64_rows\n"
          "1080 48 normjit_layernorm_backward_bf16_64_final_reduce\n");
}

TEST_CASE("the image for debuggers is an ELF file whose symbols stand at the code") {
    const auto symbols = cpu::jit_symbols(small_artifact());
    const auto image = cpu::symbol_image(reinterpret_cast<const void*>(uintptr_t{0x1000}), 200, symbols);
    Elf64_Ehdr header;
    REQUIRE(image.size() > sizeof header);
    std::memcpy(&header, image.data(), sizeof header);
    CHECK(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0);
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    REQUIRE(header.e_shoff + sections.size() * sizeof(Elf64_Shdr) <= image.size());
    std::memcpy(sections.data(), image.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
    const Elf64_Shdr& table = sections[2];
    CHECK(table.sh_type == SHT_SYMTAB);
    REQUIRE(table.sh_size == 3 * sizeof(Elf64_Sym));
    Elf64_Sym last;
    std::memcpy(&last, image.data() + table.sh_offset + 2 * sizeof last, sizeof last);
    const char* names = reinterpret_cast<const char*>(image.data() + sections[table.sh_link].sh_offset);
    CHECK(std::string(names + last.st_name) == symbols[1].name);
    CHECK(sections[last.st_shndx].sh_addr + last.st_value == 0x1080);
}

TEST_CASE("kernels come and go in any order") {
    const auto engine = Engine::create({.threads = 1});
    REQUIRE(engine.ok());
    std::vector<Kernel> kernels;
    for (const char* spec : {"layernorm cols=8", "layernorm cols=16", "layernorm cols=24"}) {
        kernels.push_back(*engine->load(*engine->compile(*parse_spec(spec))));
    }
    kernels.erase(kernels.begin() + 1);
    kernels.erase(kernels.begin());
    kernels.clear();
}
