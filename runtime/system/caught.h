// SPDX-License-Identifier: Apache-2.0
// Turns exceptions into errors where they must not go on: in the C interface, and in threads of an engine. The
// functions that a caller lends to an engine may throw anything.
#pragma once

#include "normjit/status.h"

#include <exception>
#include <new>

namespace normjit {

/// Returns the Status that `function` returns, or the message of what it throws. If memory runs out, the message says
/// so and takes none.
template <class Function>
Status caught(const Function& function) noexcept {
    try {
        try {
            return function();
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            return failed(error.what());
        } catch (...) {
            return failed("an exception of an unknown type");
        }
    } catch (...) {
        return failed("out of memory");
    }
}

}  // namespace normjit
