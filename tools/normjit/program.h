// SPDX-License-Identifier: Apache-2.0
// The whole program, for whatever starts it: main(), and the Python package.
#pragma once

namespace normjit::cli {

/// Returns the exit code. For a process with one thread that has not used normjit: `tune` forks.
int program(int argc, char** argv);

}  // namespace normjit::cli
