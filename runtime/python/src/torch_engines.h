// SPDX-License-Identifier: Apache-2.0
// normjit's engines in a PyTorch process.
#pragma once

#include "normjit/normjit.h"

namespace normjit::torch {

/// Whose threads launches on the CPU run on.
enum class Threads { torch, own };

/// Of what follows; engines made before stay.
void choose_threads(Threads threads);

/// The engine of a device, made when it is first asked for and kept as long as the process. Throws Error with the
/// reason when there is none. `cuda_index`: negative for the CPU.
normjit_engine* engine(int cuda_index);

}  // namespace normjit::torch
