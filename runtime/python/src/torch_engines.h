// SPDX-License-Identifier: Apache-2.0
// normjit's engines in a PyTorch process.
#pragma once

#include "normjit/normjit.h"

namespace normjit::torch {

/// Whose threads launches on the CPU run on from now on; engines made before stay.
void choose_threads(normjit_thread_policy policy);

/// The engine of a device, made when it is first asked for and kept as long as the process. Throws Error with the
/// reason when there is none. `cuda_index`: negative for the CPU.
normjit_engine* engine(int cuda_index);

}  // namespace normjit::torch
