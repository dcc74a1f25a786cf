// SPDX-License-Identifier: Apache-2.0
// Kernels by normjit for torch's operators. They follow the conventions of libtorch's stable interface: `stack` holds
// the arguments, which the kernel consumes, and then the results.
#pragma once

#include "torch_shim.h"

#include <cstdint>

namespace normjit::torch {

/// aten::native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd,
/// Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
void aten_layer_norm_backward(Value* stack, uint64_t inputs, uint64_t outputs);

/// aten::_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight,
/// bool[2] output_mask) -> (Tensor, Tensor)
void aten_rms_norm_backward(Value* stack, uint64_t inputs, uint64_t outputs);

/// normjit's own operators also take the gradient of a residual, compute missing statistics from x with eps, and
/// support zero-centred weights. Their schemas are in normjit/torch/operators.py.
void layer_norm_backward(Value* stack, uint64_t inputs, uint64_t outputs);
void rms_norm_backward(Value* stack, uint64_t inputs, uint64_t outputs);
/// These operators add the gradients of weight and bias to given tensors of any type.
void layer_norm_backward_into(Value* stack, uint64_t inputs, uint64_t outputs);
void rms_norm_backward_into(Value* stack, uint64_t inputs, uint64_t outputs);

/// The norms themselves, which first add the residual stream (torch_forward.cpp).
void layer_norm(Value* stack, uint64_t inputs, uint64_t outputs);
void rms_norm(Value* stack, uint64_t inputs, uint64_t outputs);

/// The calls that the kernels served in this process. A call that normjit cannot serve, such as a call for a new kernel
/// while a CUDA graph is being captured, goes to torch's own kernel through the operator normjit::torch_<operator>
/// (normjit/torch/override.py).
struct Calls {
    int64_t by_normjit, by_torch;
};
Calls calls();
/// Counts a call that normjit has served.
void count_call();
/// Copies the reason why the last call went to torch's kernel, at most `capacity` bytes; empty if no call did.
void last_reason(char* buffer, size_t capacity);

}  // namespace normjit::torch
