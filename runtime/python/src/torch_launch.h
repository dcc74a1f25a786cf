// SPDX-License-Identifier: Apache-2.0
// Launches a kernel on the operands of an operator.
#pragma once

#include "torch_tensor.h"

namespace normjit::torch {

/// Prepares the kernel for the operands' spec and launches it; on a GPU, on torch's current stream. Throws Error.
void launch(Operands& operands, Device device);

/// Sets whether later launches give a row the same bits in every batch.
void keep_bits(bool on);

}  // namespace normjit::torch
