// SPDX-License-Identifier: Apache-2.0
// The subcommands of the program, one source file each, and the options that several of them share.
#pragma once

#include "normjit/status.h"

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace normjit::cli {

struct Command {
    CLI::App* app = nullptr;
    std::function<Status()> run;  ///< after the command line has been read
};

Command add_run(CLI::App& program);
Command add_compile(CLI::App& program);
Command add_bench(CLI::App& program);
Command add_tune(CLI::App& program);
Command add_cache(CLI::App& program);
Command add_info(CLI::App& program);

/// Words of one text that the shell may have split: a spec need not be quoted.
std::string join_words(const std::vector<std::string>& words);

}  // namespace normjit::cli
