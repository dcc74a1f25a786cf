// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/exit_code.h"
#include "command_line/files.h"

#include <cstdio>
#include <exception>
#include <new>

#include <fcntl.h>
#include <unistd.h>

namespace normjit::cli {

namespace {

constexpr const char* program_examples = R"(Examples:
  normjit run --input step.safetensors --output gradients.safetensors norm=rmsnorm
  normjit run "layernorm rows=4096 cols=4096 x=bf16 gamma=f32" --check
  normjit compile "layernorm cols=4096 x=bf16 gamma=f32" --emit ir
  normjit bench "rmsnorm rows=32768 cols=768 x=bf16" --threads 1,all
  normjit tune shapes.txt -o records.jsonl --budget 10m
  normjit info

Exit codes: 0 done; 1 it ran and failed; 2 bad input or usage; 3 not available on this machine.)";

/// Opens standard streams that are closed. A file that is opened while stdin, stdout or stderr is closed would take its
/// place, and messages would go into the file.
void hold_standard_streams() {
    int file = open("/dev/null", O_RDONLY);  // writing to stdout or stderr must still be an error
    while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDONLY);
    if (file >= 0) close(file);
}

Exit run_program(int argc, char** argv) {
    ProgramLine line("normjit", "normjit " NORMJIT_VERSION,
                     "Norms and their gradients: a JIT compiler, and a runtime for its kernels.", program_examples);
    const CommandLine program = line.commands();
    const Command commands[] = {add_run(program),  add_compile(program), add_bench(program),
                                add_tune(program), add_cache(program),   add_info(program)};
    const auto [outcome, message] = line.parse(argc, argv);
    if (outcome == ProgramLine::Outcome::asked_for_text) {
        const Status written = write_text("", message);
        if (!written.ok()) print_error(written.message());
        return exit_of(written.code());
    }
    if (outcome == ProgramLine::Outcome::wrong) {
        print_error(message);
        return Exit::bad_input;
    }
    for (const Command& command : commands) {
        if (!command.line.was_given()) continue;
        Status status = command.run();
        if (!status.ok()) print_error(status.message());
        return exit_of(status.code());
    }
    return Exit::bad_input;
}

}  // namespace

int program(int argc, char** argv) {
    hold_standard_streams();
    try {
        return static_cast<int>(run_program(argc, argv));
    } catch (const std::bad_alloc&) {
        print_error("out of memory");
    } catch (const std::exception& error) {
        print_error(error.what());
    }
    return static_cast<int>(Exit::failed);
}

}  // namespace normjit::cli
