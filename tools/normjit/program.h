// SPDX-License-Identifier: Apache-2.0
// The whole program, for main() and for the Python package.
#pragma once

namespace normjit::cli {

/// Runs the program and returns the exit code. The process must have one thread and not have used normjit before:
/// `tune` forks.
int program(int argc, char** argv);

}  // namespace normjit::cli
