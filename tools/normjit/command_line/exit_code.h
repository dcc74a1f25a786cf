// SPDX-License-Identifier: Apache-2.0
// The program's exit codes.
#pragma once

#include "normjit/status.h"

namespace normjit::cli {

enum class Exit { done = 0, failed = 1, bad_input = 2, unavailable = 3 };

constexpr Exit exit_of(Code code) {
    switch (code) {
        case Code::ok:
            return Exit::done;
        case Code::invalid_argument:
            return Exit::bad_input;
        case Code::unavailable:
            return Exit::unavailable;
        case Code::failed:
        case Code::pending:
        case Code::capturing:
            break;
    }
    return Exit::failed;
}

}  // namespace normjit::cli
