// SPDX-License-Identifier: Apache-2.0
// The program's exit codes.
#pragma once

#include "normjit/status.h"

namespace normjit::cli {

enum class Exit { done = 0, failed = 1, bad_input = 2, unavailable = 3 };

constexpr Exit exit_of(Code code) {
    if (code == Code::ok) return Exit::done;
    if (code == Code::invalid_argument) return Exit::bad_input;
    return code == Code::unavailable ? Exit::unavailable : Exit::failed;
}

}  // namespace normjit::cli
