// SPDX-License-Identifier: Apache-2.0
// The whole program, as main() and the Python package call it.
#pragma once

namespace normjit::cli {

/// Runs the program and returns the exit code. The process must have one thread and must not have used normjit before,
/// because `tune` forks.
int program(int argc, char** argv);

}  // namespace normjit::cli
