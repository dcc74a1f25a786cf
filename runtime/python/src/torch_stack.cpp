// SPDX-License-Identifier: Apache-2.0
#include "torch_stack.h"

namespace normjit::torch {

size_t list_size(Value list) {
    size_t size = 0;
    NORMJIT_TORCH_CALL(torch_list_size, as_pointer<List>(list), &size);
    return size;
}

Value item(Value list, size_t i) {
    Value value = 0;
    NORMJIT_TORCH_CALL(torch_list_get_item, as_pointer<List>(list), i, &value);
    return value;
}

TensorView optional_tensor(Value value) {
    const auto* inner = as_pointer<const Value*>(value);
    const Handle tensor = inner == nullptr ? nullptr : as_pointer<Handle>(*inner);
    bool defined = false;
    if (tensor != nullptr) NORMJIT_TORCH_CALL(aoti_torch_is_defined, tensor, &defined);
    return TensorView(defined ? tensor : nullptr);
}

void free_tensor(Value value) { shim().aoti_torch_delete_tensor_object(as_pointer<Handle>(value)); }

void free_optional(Value value) {
    auto* inner = as_pointer<Value*>(value);
    if (inner == nullptr) return;
    free_tensor(*inner);
    if (shim().torch_delete_stable_ivalue != nullptr) {
        shim().torch_delete_stable_ivalue(inner);
    } else {
        delete inner;  // as the headers of torch 2.10 to 2.12 do
    }
}

void free_list(Value value) { shim().torch_delete_list(as_pointer<List>(value)); }

Value give(Tensor tensor) {
    if (!tensor) tensor = Tensor::undefined();
    return reinterpret_cast<Value>(tensor.release());
}

}  // namespace normjit::torch
