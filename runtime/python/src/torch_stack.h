// SPDX-License-Identifier: Apache-2.0
// The arguments of an operator, as libtorch's stable interface passes them. Arguments that are read are not owned;
// whoever consumes a stack frees them.
#pragma once

#include "torch_shim.h"
#include "torch_tensor.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace normjit::torch {

template <class Opaque>
Opaque as_pointer(Value value) {
    return reinterpret_cast<Opaque>(value);
}

inline double number(Value value) { return std::bit_cast<double>(value); }
inline bool truth(Value value) { return (value & 0xff) != 0; }

/// Returns the size of a list argument.
size_t list_size(Value list);
Value item(Value list, size_t i);

inline TensorView tensor(Value value) { return TensorView(as_pointer<Handle>(value)); }

/// Returns a tensor, or none. The undefined tensor, which autograd passes for "none", is none as well.
TensorView optional_tensor(Value value);

void free_tensor(Value value);
void free_optional(Value value);
void free_list(Value value);

/// Passes a tensor on as a result of the operator; none becomes the undefined tensor.
Value give(Tensor tensor);

}  // namespace normjit::torch
