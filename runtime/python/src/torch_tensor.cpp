// SPDX-License-Identifier: Apache-2.0
#include "torch_tensor.h"

#include <algorithm>
#include <array>
#include <string>

namespace normjit::torch {

namespace {

constexpr size_t most_dimensions = 64;  // of torch's tensors

}  // namespace

std::span<const int64_t> TensorView::sizes() const {
    int64_t* sizes = nullptr;
    int64_t dimensions = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_dim, handle_, &dimensions);
    NORMJIT_TORCH_CALL(aoti_torch_get_sizes, handle_, &sizes);
    return {sizes, static_cast<size_t>(dimensions)};
}

const int64_t* TensorView::strides() const {
    int64_t* strides = nullptr;
    NORMJIT_TORCH_CALL(aoti_torch_get_strides, handle_, &strides);
    return strides;
}

int64_t TensorView::elements() const {
    int64_t elements = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_numel, handle_, &elements);
    return elements;
}

bool TensorView::is_contiguous() const {
    bool contiguous = false;
    NORMJIT_TORCH_CALL(aoti_torch_is_contiguous, handle_, &contiguous);
    return contiguous;
}

int32_t TensorView::torch_dtype() const {
    int32_t dtype = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_dtype, handle_, &dtype);
    return dtype;
}

std::optional<normjit_dtype> TensorView::dtype() const {
    static const std::array<int32_t, 4> numbers = {
        shim().aoti_torch_dtype_float32(), shim().aoti_torch_dtype_bfloat16(), shim().aoti_torch_dtype_float16(),
        shim().aoti_torch_dtype_float64()};
    static_assert(NORMJIT_F32 == 0 && NORMJIT_BF16 == 1 && NORMJIT_F16 == 2 && NORMJIT_F64 == 3);
    const auto at = std::ranges::find(numbers, torch_dtype());
    if (at == numbers.end()) return std::nullopt;
    return static_cast<normjit_dtype>(at - numbers.begin());
}

Device TensorView::device() const {
    Device device{};
    NORMJIT_TORCH_CALL(aoti_torch_get_device_type, handle_, &device.type);
    NORMJIT_TORCH_CALL(aoti_torch_get_device_index, handle_, &device.index);
    return device;
}

const void* TensorView::data() const {
    const void* data = nullptr;
    NORMJIT_TORCH_CALL(torch_get_const_data_ptr, handle_, &data);
    return data;
}

Tensor::~Tensor() {
    if (handle_ != nullptr) shim().aoti_torch_delete_tensor_object(handle_);
}

Tensor Tensor::contiguous(std::span<const int64_t> sizes, int32_t torch_dtype, Device device) {
    int64_t strides[most_dimensions];
    int64_t next = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = next;
        next *= std::max<int64_t>(sizes[i], 1);
    }
    Handle made = nullptr;
    NORMJIT_TORCH_CALL(aoti_torch_empty_strided, static_cast<int64_t>(sizes.size()), sizes.data(), strides, torch_dtype,
                       device.type, device.index, &made);
    return Tensor(made);
}

Tensor Tensor::empty(TensorView like, Device device) { return contiguous(like.sizes(), like.torch_dtype(), device); }

Tensor Tensor::empty_statistic(TensorView of, size_t normalized, Device device) {
    int64_t sizes[most_dimensions];
    const auto all = of.sizes();
    for (size_t i = 0; i < all.size(); ++i) sizes[i] = i + normalized < all.size() ? all[i] : 1;
    const bool is_double = of.torch_dtype() == shim().aoti_torch_dtype_float64();
    const int32_t type = is_double ? shim().aoti_torch_dtype_float64() : shim().aoti_torch_dtype_float32();
    return contiguous({sizes, all.size()}, type, device);
}

Tensor Tensor::undefined() {
    Handle made = nullptr;
    NORMJIT_TORCH_CALL(aoti_torch_new_uninitialized_tensor, &made);
    return Tensor(made);
}

void* TensorView::mutable_data() const {
    void* data = nullptr;
    NORMJIT_TORCH_CALL(torch_get_mutable_data_ptr, handle_, &data);
    return data;
}

Tensor copy_of(TensorView tensor) {
    Tensor copy = Tensor::empty(tensor, tensor.device());
    NORMJIT_TORCH_CALL(aoti_torch_copy_, copy.view().handle(), tensor.handle(), 0);
    return copy;
}

std::optional<int64_t> row_stride(TensorView tensor, int64_t cols) {
    const auto sizes = tensor.sizes();
    const int64_t* strides = tensor.strides();
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

Operands::Operands(normjit_norm norm, normjit_pass pass, int64_t cols, double eps) {
    spec.size = sizeof spec, spec.norm = norm, spec.pass = pass, spec.rows = -1, spec.cols = cols, spec.eps = eps;
    std::fill(std::begin(spec.dtypes), std::end(spec.dtypes), NORMJIT_NONE);
    arguments.size = sizeof arguments;
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

void Operands::read_vector(normjit_tensor which, TensorView tensor, int64_t cols) {
    if (!tensor.is_contiguous()) {
        copies_.push_back(copy_of(tensor));
        tensor = copies_.back().view();
    }
    set(which, tensor, const_cast<void*>(tensor.data()), cols, 0);
}

void Operands::write(normjit_tensor which, const Tensor& tensor, int64_t cols) {
    set(which, tensor.view(), tensor.view().mutable_data(), cols, 0);
}

void Operands::add_to(normjit_tensor which, TensorView tensor, int64_t cols) {
    if (tensor.elements() != cols || !tensor.is_contiguous()) {
        throw Error("a tensor that a gradient is added to must be contiguous, with " + std::to_string(cols) +
                    " elements");
    }
    set(which, tensor, tensor.mutable_data(), cols, 0);
    spec.accumulate |= 1u << which;
}

}  // namespace normjit::torch
