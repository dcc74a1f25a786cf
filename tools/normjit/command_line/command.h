// SPDX-License-Identifier: Apache-2.0
// The subcommands of the program, one source file each, and the options that several of them share.
#pragma once

#include "command_line/command_line.h"

#include "normjit/status.h"

#include <functional>
#include <string>
#include <vector>

namespace normjit::cli {

struct Command {
    CommandLine line;
    std::function<Status()> run;  ///< called after the command line has been read
};

Command add_run(const CommandLine& program);
Command add_compile(const CommandLine& program);
Command add_bench(const CommandLine& program);
Command add_tune(const CommandLine& program);
Command add_cache(const CommandLine& program);
Command add_info(const CommandLine& program);

}  // namespace normjit::cli
