// SPDX-License-Identifier: Apache-2.0
// The engines and kernels of a JAX process, which live as long as the process.
#pragma once

#include "normjit/normjit.h"

#include <stdexcept>
#include <string>

namespace normjit::jax {

/// An error with a message for the caller.
struct Failure : std::runtime_error {
    Failure(normjit_status why, const std::string& message) : std::runtime_error(message), status(why) {}
    normjit_status status;
};

/// Throws the message of a failed call of normjit.
void check(normjit_status status);

struct Kernel {
    normjit_spec spec{};
    normjit_kernel* kernel = nullptr;
};

/// Returns the kernel for "cpu" or "cuda:N", made at the first request. `stream`: see normjit_prepare_options. Throws
/// Failure. Thread safe.
const Kernel& kernel_of(const std::string& device, const std::string& spec, void* stream);

}  // namespace normjit::jax
