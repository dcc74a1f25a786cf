// SPDX-License-Identifier: Apache-2.0
// normjit's engines in a PyTorch process.
#pragma once

#include "normjit/normjit.h"

namespace normjit::torch {

/// The log of engines that are made from now on.
void set_log(normjit_log log);
/// Sets whose threads CPU launches use from now on. Existing engines do not change.
void choose_threads(normjit_thread_policy policy);

/// Returns the engine of a device. The first request makes it, and it lives as long as the process. Throws Error with
/// the reason if there is none. A negative `cuda_index` is the CPU.
normjit_engine* engine(int cuda_index);

}  // namespace normjit::torch
