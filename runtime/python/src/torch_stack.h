// SPDX-License-Identifier: Apache-2.0
// The arguments of an operator as libtorch's stable interface hands them over. Those that are read are not owned;
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

/// Of a list that is an argument.
size_t list_size(Value list);
Value item(Value list, size_t i);

inline TensorView tensor(Value value) { return TensorView(as_pointer<Handle>(value)); }

/// None, too, for the undefined tensor that autograd hands over for "none".
TensorView optional_tensor(Value value);

void free_tensor(Value value);
void free_optional(Value value);
void free_list(Value value);

/// As a result of the operator; the undefined tensor for none.
Value give(Tensor tensor);

}  // namespace normjit::torch
