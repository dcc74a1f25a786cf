// SPDX-License-Identifier: Apache-2.0
#include "command.h"
#include "console.h"
#include "exit_code.h"

#include <cstdio>
#include <new>

#include <fmt/core.h>

#include <CLI/CLI.hpp>

namespace normjit::cli {

std::string join_words(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

namespace {

constexpr const char* examples = R"(Examples:
  normjit run --input step.safetensors --output gradients.safetensors norm=rmsnorm
  normjit run "layernorm rows=4096 cols=4096 x=bf16 gamma=f32" --check
  normjit compile "layernorm cols=4096 x=bf16 gamma=f32" --emit ir
  normjit bench "rmsnorm rows=32768 cols=768 x=bf16" --threads 1,all
  normjit tune shapes.txt -o records.jsonl --budget 10m
  normjit info

Exit codes: 0 done; 1 it ran and failed; 2 bad input or usage; 3 not available on this machine.)";

/// The command that the user got wrong, or nothing.
std::string wrong_command(const CLI::App& program, int argc, char** argv) {
    if (argc < 2 || argv[1][0] == '-') return "no command";
    for (const CLI::App* command : program.get_subcommands({})) {
        if (command->get_name() == argv[1]) return {};
    }
    return fmt::format("unknown command '{}'", argv[1]);
}

/// Everything that the user can get wrong on the command line ends here.
Exit usage(const CLI::App& program, const CLI::ParseError& error, int argc, char** argv) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
        program.exit(error);  // --help or --version: prints it
        return Exit::done;
    }
    std::string wrong = wrong_command(program, argc, argv);
    if (!wrong.empty()) {
        print_error(wrong + "; allowed: run compile bench tune cache info (see normjit --help)");
    } else {
        print_error(fmt::format("{} (see normjit {} --help)", error.what(), argv[1]));
    }
    return Exit::bad_input;
}

Exit run_program(int argc, char** argv) {
    CLI::App program("Gradients of LayerNorm and RMSNorm: a JIT compiler and what runs its kernels.", "normjit");
    program.footer(examples);
    program.set_version_flag("--version", "normjit " NORMJIT_VERSION);
    program.require_subcommand(1);
    const Command commands[] = {add_run(program),  add_compile(program), add_bench(program),
                                add_tune(program), add_cache(program),   add_info(program)};
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return usage(program, error, argc, argv);
    }
    for (const Command& command : commands) {
        if (!command.app->parsed()) continue;
        Status status = command.run();
        if (!status.ok()) print_error(status.message());
        return exit_of(status.code());
    }
    return Exit::bad_input;
}

}  // namespace
}  // namespace normjit::cli

int main(int argc, char** argv) {
    using namespace normjit::cli;
    try {
        return static_cast<int>(run_program(argc, argv));
    } catch (const std::bad_alloc&) {
        print_error("out of memory");
    } catch (const std::exception& error) {
        print_error(error.what());
    }
    return static_cast<int>(Exit::failed);
}
