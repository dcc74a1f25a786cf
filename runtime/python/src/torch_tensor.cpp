// SPDX-License-Identifier: Apache-2.0
#include "torch_tensor.h"

#include <string>

namespace normjit::torch {

bool TensorView::defined() const {
    bool defined = false;
    if (handle_ != nullptr) NORMJIT_TORCH_CALL(aoti_torch_is_defined, handle_, &defined);
    return defined;
}

std::span<const int64_t> TensorView::sizes() const {
    int64_t* sizes = nullptr;
    int64_t dimensions = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_dim, handle_, &dimensions);
    NORMJIT_TORCH_CALL(aoti_torch_get_sizes, handle_, &sizes);
    return {sizes, static_cast<size_t>(dimensions)};
}

std::span<const int64_t> TensorView::strides() const {
    int64_t* strides = nullptr;
    int64_t dimensions = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_dim, handle_, &dimensions);
    NORMJIT_TORCH_CALL(aoti_torch_get_strides, handle_, &strides);
    return {strides, static_cast<size_t>(dimensions)};
}

int32_t TensorView::torch_dtype() const {
    int32_t dtype = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_dtype, handle_, &dtype);
    return dtype;
}

std::optional<normjit_dtype> TensorView::dtype() const {
    const int32_t dtype = torch_dtype();
    if (dtype == shim().aoti_torch_dtype_float32()) return NORMJIT_F32;
    if (dtype == shim().aoti_torch_dtype_bfloat16()) return NORMJIT_BF16;
    if (dtype == shim().aoti_torch_dtype_float16()) return NORMJIT_F16;
    if (dtype == shim().aoti_torch_dtype_float64()) return NORMJIT_F64;
    return std::nullopt;
}

bool TensorView::on_cuda() const {
    int32_t type = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_device_type, handle_, &type);
    return type == shim().aoti_torch_device_type_cuda();
}

int32_t TensorView::device_index() const {
    int32_t index = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_device_index, handle_, &index);
    return index;
}

const void* TensorView::data() const {
    const void* data = nullptr;
    NORMJIT_TORCH_CALL(torch_get_const_data_ptr, handle_, &data);
    return data;
}

Tensor::~Tensor() {
    if (handle_ != nullptr) shim().aoti_torch_delete_tensor_object(handle_);
}

Tensor Tensor::empty(std::span<const int64_t> sizes, int32_t torch_dtype, TensorView like) {
    int64_t strides[64];  // of torch's 64 dimensions
    int64_t next = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = next;
        next *= std::max<int64_t>(sizes[i], 1);
    }
    int32_t device_type = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_device_type, like.handle(), &device_type);
    Handle made = nullptr;
    NORMJIT_TORCH_CALL(aoti_torch_empty_strided, static_cast<int64_t>(sizes.size()), sizes.data(), strides, torch_dtype,
                       device_type, like.device_index(), &made);
    return Tensor(made);
}

Tensor Tensor::undefined() {
    Handle made = nullptr;
    NORMJIT_TORCH_CALL(aoti_torch_new_uninitialized_tensor, &made);
    return Tensor(made);
}

void* Tensor::mutable_data() const {
    void* data = nullptr;
    NORMJIT_TORCH_CALL(torch_get_mutable_data_ptr, handle_, &data);
    return data;
}

Tensor copy_of(TensorView tensor) {
    Tensor copy = Tensor::empty(tensor.sizes(), tensor.torch_dtype(), tensor);
    NORMJIT_TORCH_CALL(aoti_torch_copy_, copy.view().handle(), tensor.handle(), 0);
    return copy;
}

std::optional<int64_t> row_stride(TensorView tensor, int64_t cols) {
    const auto sizes = tensor.sizes(), strides = tensor.strides();
    int64_t inner = 1;  // elements of the dimensions from i on
    size_t i = sizes.size();
    for (; i > 0 && inner < cols; --i) {
        if (sizes[i - 1] != 1 && strides[i - 1] != inner) return std::nullopt;
        inner *= sizes[i - 1];
    }
    if (inner != cols) return std::nullopt;
    std::optional<int64_t> stride;
    int64_t next = 0;
    for (; i > 0; --i) {
        if (sizes[i - 1] == 1) continue;
        if (!stride) stride = strides[i - 1], next = *stride;
        if (strides[i - 1] != next) return std::nullopt;
        next *= sizes[i - 1];
    }
    if (!stride) return cols;
    if (*stride != 0 && *stride < cols) return std::nullopt;  // rows that overlap
    return stride;
}

void Operands::set(normjit_tensor which, TensorView tensor, void* data, int64_t cols, int64_t stride) {
    const auto dtype = tensor.dtype();
    if (!dtype) throw Error("a tensor is of none of the types f32, bf16, f16 and f64");
    spec.dtypes[which] = *dtype;
    arguments.tensors[which] = {data, cols, stride, *dtype, 0};
}

void Operands::read_matrix(normjit_tensor which, TensorView tensor, int64_t cols) {
    auto stride = row_stride(tensor, cols);
    if (!stride) {
        copies_.push_back(copy_of(tensor));
        tensor = copies_.back().view();
        stride = cols;
    }
    set(which, tensor, const_cast<void*>(tensor.data()), cols, *stride == 0 ? NORMJIT_REPEAT_ROW : *stride);
}

void Operands::read_contiguous(normjit_tensor which, TensorView tensor, int64_t cols) {
    int64_t count = 1;
    for (const int64_t size : tensor.sizes()) count *= size;
    if (count != 0 && !row_stride(tensor, count)) {
        copies_.push_back(copy_of(tensor));
        tensor = copies_.back().view();
    }
    set(which, tensor, const_cast<void*>(tensor.data()), cols, 0);
}

void Operands::write(normjit_tensor which, const Tensor& tensor, int64_t cols) {
    set(which, tensor.view(), tensor.mutable_data(), cols, 0);
}

}  // namespace normjit::torch
