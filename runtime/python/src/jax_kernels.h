// SPDX-License-Identifier: Apache-2.0
// The engines and kernels of a JAX process, which live as long as the process.
#pragma once

#include "failure.h"

#include "normjit/normjit.h"

#include <string_view>

namespace normjit::jax {

using python::check, python::Failure;

struct Kernel {
    normjit_spec spec{};
    normjit_kernel* kernel = nullptr;
};

/// Returns the kernel for "cpu" or "cuda:N", which the first request makes; on a GPU, for about `rows` rows. `stream`:
/// see normjit_prepare_options. Throws Failure. Thread safe.
const Kernel& kernel_of(std::string_view device, std::string_view spec, int64_t rows, void* stream);

}  // namespace normjit::jax
