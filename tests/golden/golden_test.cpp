// SPDX-License-Identifier: Apache-2.0
// The first lines of each file *.golden in this folder say what to compile, and the rest is what the result must be.
// NORMJIT_GOLDEN=rewrite writes the present results into the files; read the diff before you commit it.
#include "disassemble.h"

#include "normjit/compile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

constexpr const char* separator = "----\n";

struct Golden {
    std::map<std::string, std::string> keys;  ///< spec, schedule, target, emit
    std::string head;
    std::string expected;
};

Golden read(const std::filesystem::path& path) {
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t split = text.find(separator);
    REQUIRE_MESSAGE(split != text.npos, path.string(), " has no line ----");
    Golden golden{.keys = {}, .head = text.substr(0, split), .expected = text.substr(split + 5)};
    std::istringstream lines(golden.head);
    for (std::string line; std::getline(lines, line);) {
        const size_t colon = line.find(": ");
        REQUIRE_MESSAGE(colon != line.npos, path.string(), ": ", line);
        golden.keys[line.substr(0, colon)] = line.substr(colon + 2);
    }
    return golden;
}

/// Drops the line that differs between versions of LLVM, which describes the target and not the code.
std::string without_layout(std::string text) {
    const size_t begin = text.find("target datalayout");
    if (begin != text.npos) text.erase(begin, text.find('\n', begin) + 1 - begin);
    return text;
}

Expected<std::string> emit(const Golden& golden) {
    const auto spec = parse_spec(golden.keys.at("spec"));
    if (!spec) return spec.status();
    const auto target = parse_target(golden.keys.at("target"));
    if (!target) return target.status();
    const auto schedule = parse_schedule(golden.keys.at("schedule"));
    if (!schedule) return schedule.status();
    const std::string& stage = golden.keys.at("emit");
    if (stage == "llvm") {
        auto text = emit_stage(*spec, *schedule, *target, stage);
        return text.ok() ? without_layout(std::move(*text)) : text;
    }
    if (stage != "asm") return emit_stage(*spec, *schedule, *target, stage);
    const auto artifact = compile(*spec, *schedule, *target);
    if (!artifact) return artifact.status();
    return cli::disassemble_with_objdump(*artifact);
}

}  // namespace

TEST_CASE("golden files") {
    const char* mode = std::getenv("NORMJIT_GOLDEN");
    const bool rewrite = mode != nullptr && std::string(mode) == "rewrite";
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
        if (entry.path().extension() != ".golden") continue;
        ++files;
        CAPTURE(entry.path().string());
        const Golden golden = read(entry.path());
        const auto got = emit(golden);
        if (!got && got.status().code() == Code::unavailable) {
            MESSAGE("skipped ", entry.path().string(), ": ", got.status().message());
            continue;
        }
        REQUIRE_MESSAGE(got.ok(), got.status().message());
        if (rewrite) std::ofstream(entry.path()) << golden.head << separator << *got;
        CHECK_MESSAGE((rewrite || *got == golden.expected), "differs; NORMJIT_GOLDEN=rewrite and git diff show how");
    }
    CHECK(files > 0);
}
