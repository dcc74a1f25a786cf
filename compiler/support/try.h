// SPDX-License-Identifier: Apache-2.0
// Propagates errors: an early return of a Status, or of an Expected that holds one.
#pragma once

#include "normjit/status.h"

#define NORMJIT_RETURN_IF_ERROR(expression)                            \
    do {                                                               \
        if (::normjit::Status status_ = (expression); !status_.ok()) { \
            return status_;                                            \
        }                                                              \
    } while (false)

#define NORMJIT_CONCAT_(a, b) a##b
#define NORMJIT_CONCAT(a, b) NORMJIT_CONCAT_(a, b)

/// NORMJIT_TRY(auto artifact, compile(...)): declares `artifact`, or returns the error.
#define NORMJIT_TRY(declaration, expression)                 \
    auto NORMJIT_CONCAT(expected_, __LINE__) = (expression); \
    if (!NORMJIT_CONCAT(expected_, __LINE__).ok()) {         \
        return NORMJIT_CONCAT(expected_, __LINE__).status(); \
    }                                                        \
    declaration = *std::move(NORMJIT_CONCAT(expected_, __LINE__))
