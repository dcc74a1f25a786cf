// SPDX-License-Identifier: Apache-2.0
#include "disassemble.h"

#include "support/try.h"
#include "system/file_io.h"

#include "normjit/compile.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace normjit::cli {
namespace {

Status system_error(const char* what) { return failed(fmt::format("{}: {}", what, std::strerror(errno))); }

std::string read_all(int descriptor) {
    std::string text;
    char buffer[1 << 14];
    for (;;) {
        ssize_t count = read(descriptor, buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return text;
        text.append(buffer, static_cast<size_t>(count));
    }
}

/// A program of this machine that prints code as text. `arguments` ends before the name of the file.
struct Tool {
    std::vector<std::string> names;  ///< tried one after another; each is a name in PATH or a full path
    std::vector<std::string> arguments;
    std::string_view wanted_by;  ///< quoted in the error: "--emit asm needs objdump (binutils)"
};

Expected<std::string> run_tool(const Tool& tool, const std::vector<uint8_t>& code) {
    if (getauxval(AT_SECURE) != 0) {  // PATH comes from the caller
        return unavailable(
            fmt::format("{}; a program with more rights than its caller starts no other program", tool.wanted_by));
    }
    const Descriptor file(memfd_create("normjit", 0));  // the child inherits it
    if (!file.is_open()) return system_error("cannot make a file in memory");
    if (write(file.get(), code.data(), code.size()) != static_cast<ssize_t>(code.size())) {
        return system_error("cannot write a file in memory");
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
    const Descriptor output(ends[0]);
    Descriptor input(ends[1]);

    std::vector<std::string> words = {tool.names[0]};
    words.insert(words.end(), tool.arguments.begin(), tool.arguments.end());
    words.push_back(fmt::format("/proc/self/fd/{}", file.get()));
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
    pid_t child = 0;
    int error = ENOENT;
    for (const std::string& name : tool.names) {
        if (error != 0) error = posix_spawnp(&child, name.c_str(), &actions, nullptr, arguments.data(), environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return unavailable(fmt::format("{}: {}", tool.wanted_by, std::strerror(error)));
    input = Descriptor();
    std::string text = read_all(output.get());
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        return failed(fmt::format("{} could not read the code", tool.names[0]));
    }
    return text;
}

Expected<std::string> run_objdump(const std::vector<uint8_t>& code) {
    return run_tool(
        {.names = {"objdump"},
         .arguments = {"-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "-w", "--no-show-raw-insn"},
         .wanted_by = "--emit asm needs objdump (binutils)"},
        code);
}

/// Returns the address at the start of an instruction's line, such as "   1f:\tret"; -1 for other lines.
int64_t address_of(const std::string& text) {
    size_t start = text.find_first_not_of(' ');
    size_t colon = text.find(":\t");
    if (start == std::string::npos || colon == std::string::npos) return -1;
    int64_t address = -1;
    auto [end, error] = std::from_chars(text.data() + start, text.data() + colon, address, 16);
    return error == std::errc() && end == text.data() + colon ? address : -1;
}

/// Returns where the constants start: the lowest address after the code that an instruction reads relative to its own.
/// objdump writes it as "# 0x23c0".
int64_t constants_start(const Artifact& artifact, const std::string& listing) {
    auto start = static_cast<int64_t>(artifact.code.size());
    constexpr std::string_view mark = "# 0x";
    for (size_t at = listing.find(mark); at != std::string::npos; at = listing.find(mark, at + 1)) {
        int64_t address = 0;
        std::from_chars(listing.data() + at + mark.size(), listing.data() + listing.size(), address, 16);
        bool behind_code = true;
        for (const EntryPoint& entry : artifact.entries) behind_code = behind_code && address > entry.offset;
        if (behind_code) start = std::min(start, address);
    }
    return start;
}

/// Prints 16 bytes per line, as 32-bit words.
std::string constants_text(const std::vector<uint8_t>& code, int64_t start) {
    std::string text;
    for (auto at = static_cast<size_t>(start); at + 4 <= code.size(); at += 4) {
        uint32_t word = 0;
        std::memcpy(&word, code.data() + at, sizeof word);
        bool first = (at - static_cast<size_t>(start)) % 16 == 0;
        text += first ? fmt::format("{}    {:4x}:\t0x{:08x}", text.empty() ? "\nconstants:\n" : "\n", at, word)
                      : fmt::format(" 0x{:08x}", word);
    }
    return text.empty() ? text : text + "\n";
}

/// Returns the listing with a label where each entry point starts, and the constants as words.
std::string labelled(const Artifact& artifact, const std::string& listing) {
    const int64_t code_end = constants_start(artifact, listing);
    std::istringstream lines(listing);
    std::string text;
    for (std::string instruction; std::getline(lines, instruction);) {
        int64_t address = address_of(instruction);
        if (address < 0 || address >= code_end) continue;
        for (const EntryPoint& entry : artifact.entries) {
            if (entry.offset == address) text += fmt::format("{}{}:\n", text.empty() ? "" : "\n", entry.name);
        }
        instruction.erase(instruction.find_last_not_of(' ') + 1);
        text += instruction + "\n";
    }
    return text + constants_text(artifact.code, code_end);
}

}  // namespace

Expected<std::string> disassemble(const Artifact& artifact) {
    const auto listing = list_instructions(artifact);
    return listing.ok() ? labelled(artifact, *listing) : disassemble_with_objdump(artifact);
}

Expected<std::string> disassemble_with_objdump(const Artifact& artifact) {
    if (artifact.format != CodeFormat::x86_64) {
        return unavailable(fmt::format("--emit asm: this build disassembles x86-64 code; the artifact is {} for '{}'",
                                       name(artifact.format), to_text(artifact.target)));
    }
    NORMJIT_TRY(const std::string listing, run_objdump(artifact.code));
    return labelled(artifact, listing);
}

Expected<std::string> disassemble_cuda(const Artifact& artifact) {
    if (artifact.format != CodeFormat::cubin) {
        return unavailable(fmt::format("--emit sass disassembles cubins; the artifact has {}", name(artifact.format)));
    }
    return run_tool({.names = {"nvdisasm", "/usr/local/cuda/bin/nvdisasm"},
                     .arguments = {"--print-code"},
                     .wanted_by = "--emit sass needs nvdisasm (CUDA toolkit)"},
                    artifact.code);
}

}  // namespace normjit::cli
