// SPDX-License-Identifier: Apache-2.0
// The normjit program as a function of the package's library.
#include "program.h"

extern "C" __attribute__((visibility("default"))) int normjit_main(int argc, char** argv);

int normjit_main(int argc, char** argv) { return normjit::cli::program(argc, argv); }
