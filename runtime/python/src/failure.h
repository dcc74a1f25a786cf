// SPDX-License-Identifier: Apache-2.0
// Passes errors to a caller in another interface than normjit.h.
#pragma once

#include "normjit/normjit.h"

#include <stdexcept>
#include <string>

namespace normjit::python {

/// An error with a message for the caller.
struct Failure : std::runtime_error {
    Failure(normjit_status why, const std::string& message) : std::runtime_error(message), status(why) {}
    normjit_status status;
};

/// Throws the message of a failed call of normjit.
inline void check(normjit_status status) {
    if (status != NORMJIT_OK) throw Failure(status, normjit_last_error());
}

}  // namespace normjit::python
