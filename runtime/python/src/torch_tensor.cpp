// SPDX-License-Identifier: Apache-2.0
#include "torch_tensor.h"

#include "torch_pages.h"

#include <algorithm>
#include <array>
#include <string>

namespace normjit::torch {

namespace {

constexpr size_t most_dimensions = 64;  // the most dimensions that a tensor of torch has
constexpr int64_t least_elements_of_huge_pages = 1 << 20;

std::optional<normjit_dtype> dtype_of(int32_t torch_dtype) {
    const auto& numbers = shim().dtypes;
    const auto at = std::ranges::find(numbers, torch_dtype);
    if (at == numbers.end()) return std::nullopt;
    return static_cast<normjit_dtype>(at - numbers.begin());
}

void* mutable_data_of(Handle tensor) {
    void* data = nullptr;
    NORMJIT_TORCH_CALL(torch_get_mutable_data_ptr, tensor, &data);
    return data;
}

/// Several dimensions that one stride describes.
struct Run {
    int64_t count = 1;
    std::optional<int64_t> stride;  ///< none if there is no more than one element
};

/// Returns the run that some dimensions form, or nothing if no single stride describes them.
std::optional<Run> run_of(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
    Run run;
    for (size_t i = sizes.size(); i-- > 0;) {
        if (sizes[i] == 1) continue;
        if (!run.stride) run.stride = strides[i];
        if (strides[i] != *run.stride * run.count) return std::nullopt;
        run.count *= sizes[i];
    }
    return run;
}

/// Returns how many of the last dimensions form a row.
size_t dimensions_of_row(std::span<const int64_t> sizes, int64_t cols) {
    size_t count = 0;
    for (int64_t inner = 1; count < sizes.size() && inner < cols; ++count) inner *= sizes[sizes.size() - 1 - count];
    return count;
}

int64_t stride_argument(int64_t stride) { return stride == 0 ? NORMJIT_REPEAT_ROW : stride; }

/// Returns how many of the first dimensions must be slices so that strides describe x; 0 if no number suffices.
size_t slices_needed(TensorView x, int64_t cols) {
    const auto sizes = x.sizes();
    const size_t outer = sizes.size() - dimensions_of_row(sizes, cols);
    for (size_t count = 0; count < outer; ++count) {
        if (row_strides(x, cols, count)) return count;
    }
    return 0;
}

}  // namespace

TensorView::TensorView(Handle handle) : handle_(handle) {
    if (handle == nullptr) return;
    int64_t* sizes = nullptr;
    int64_t dimensions = 0;
    NORMJIT_TORCH_CALL(aoti_torch_get_sizes, handle_, &sizes);
    NORMJIT_TORCH_CALL(aoti_torch_get_dim, handle_, &dimensions);
    NORMJIT_TORCH_CALL(aoti_torch_get_dtype, handle_, &torch_dtype_);
    sizes_ = {sizes, static_cast<size_t>(dimensions)};
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

std::optional<normjit_dtype> TensorView::dtype() const { return dtype_of(torch_dtype_); }

Device TensorView::device() const {
    Device device{0, -1};
    NORMJIT_TORCH_CALL(aoti_torch_get_device_type, handle_, &device.type);
    if (device.type != shim().cpu) NORMJIT_TORCH_CALL(aoti_torch_get_device_index, handle_, &device.index);
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
    Tensor tensor(made, torch_dtype);
    if (next >= least_elements_of_huge_pages && device.type == shim().aoti_torch_device_type_cpu()) {
        int64_t bytes = 0;
        NORMJIT_TORCH_CALL(aoti_torch_get_storage_size, made, &bytes);
        ask_for_huge_pages(tensor.data(), bytes);
    }
    return tensor;
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

void* TensorView::mutable_data() const { return mutable_data_of(handle_); }
void* Tensor::data() const { return mutable_data_of(handle_); }

Tensor copy_of(TensorView tensor) {
    Tensor copy = Tensor::empty(tensor, tensor.device());
    NORMJIT_TORCH_CALL(aoti_torch_copy_, copy.handle(), tensor.handle(), 0);
    return copy;
}

std::optional<RowStrides> row_strides(TensorView matrix, int64_t cols, size_t slice_dimensions) {
    const auto sizes = matrix.sizes();
    const std::span strides(matrix.strides(), sizes.size());
    const size_t outer = sizes.size() - dimensions_of_row(sizes, cols);
    const auto row = run_of(sizes.subspan(outer), strides.subspan(outer));
    if (!row || row->count != cols || row->stride.value_or(1) != 1 || slice_dimensions > outer) return std::nullopt;
    const size_t rows_of_slice = outer - slice_dimensions;
    const auto rows =
        run_of(sizes.subspan(slice_dimensions, rows_of_slice), strides.subspan(slice_dimensions, rows_of_slice));
    const auto slices = run_of(sizes.first(slice_dimensions), strides.first(slice_dimensions));
    if (!rows || !slices) return std::nullopt;
    const auto are_apart = [&](const Run& run) { return run.stride.value_or(0) == 0 || *run.stride >= cols; };
    if (!are_apart(*rows) || !are_apart(*slices)) return std::nullopt;
    const int64_t row_stride = rows->stride.value_or(cols);
    return RowStrides{row_stride, slices->stride.value_or(row_stride * rows->count)};
}

Operands::Operands(normjit_norm norm, normjit_pass pass, TensorView x, int64_t cols, size_t row_dimensions,
                   size_t weight_slices, double eps)
    : x_(x.sizes()),
      cols_(cols),
      row_dimensions_(row_dimensions),
      slice_dimensions_(weight_slices),
      weight_slices_(weight_slices) {
    spec.size = sizeof spec, spec.norm = norm, spec.pass = pass, spec.rows = -1, spec.cols = cols, spec.eps = eps;
    std::fill(std::begin(spec.dtypes), std::end(spec.dtypes), NORMJIT_NONE);
    arguments.size = sizeof arguments;
    const int64_t rows = cols == 0 ? 0 : x.elements() / cols;
    if (weight_slices == 0 && rows > 0 && !x.is_contiguous()) slice_dimensions_ = slices_needed(x, cols);
    if (slice_dimensions_ > 0) {
        const auto sizes = x.sizes();
        for (const int64_t size : sizes.first(std::min(slice_dimensions_, sizes.size()))) slices_ *= size;
        spec.slices = -1;
        arguments.slices = slices_ == 0 ? NORMJIT_NO_SLICES : slices_;
    }
    arguments.rows = slices_ == 0 ? 0 : rows / slices_;
}

void Operands::set(normjit_tensor which, int32_t torch_dtype, void* data, int64_t cols) {
    const auto dtype = dtype_of(torch_dtype);
    if (!dtype) throw Error("a tensor is of none of the types f32, bf16, f16 and f64");
    spec.dtypes[which] = *dtype;
    arguments.tensors[which] = {data, cols, 0, *dtype, 0};
}

void Operands::set_strides(normjit_tensor which, RowStrides strides) {
    arguments.tensors[which].row_stride = stride_argument(strides.row);
    if (slice_dimensions_ > 0) arguments.slice_strides[which] = stride_argument(strides.slice);
}

TensorView Operands::contiguous(TensorView tensor) {
    if (tensor.is_contiguous()) return tensor;
    copies_.push_back(copy_of(tensor));
    return copies_.back().view();
}

void Operands::read_matrix(normjit_tensor which, TensorView tensor) {
    std::optional<RowStrides> strides;
    if (!tensor.is_contiguous()) {
        if (std::ranges::equal(tensor.sizes(), x_)) strides = row_strides(tensor, cols_, slice_dimensions_);
        if (!strides) tensor = contiguous(tensor);
    }
    set(which, tensor.torch_dtype(), const_cast<void*>(tensor.data()), cols_);
    if (strides) set_strides(which, *strides);
}

/// True if a weight, or its gradient, has a row for each slice.
bool Operands::is_per_slice(TensorView weight) const {
    return weight_slices_ > 0 && weight.dimensions() == weight_slices_ + row_dimensions_;
}

void Operands::read_weight(normjit_tensor which, TensorView tensor) {
    const bool per_slice = is_per_slice(tensor);
    std::optional<RowStrides> strides;
    if (per_slice) strides = row_strides(tensor, cols_, weight_slices_);
    if (!strides) tensor = contiguous(tensor);
    set(which, tensor.torch_dtype(), const_cast<void*>(tensor.data()), cols_);
    if (strides) arguments.slice_strides[which] = stride_argument(strides->slice);
    if (per_slice) spec.per_slice |= 1u << which;
}

void Operands::read_statistic(normjit_tensor which, TensorView tensor) {
    tensor = contiguous(tensor);
    set(which, tensor.torch_dtype(), const_cast<void*>(tensor.data()), 0);
}

void Operands::write_matrix(normjit_tensor which, const Tensor& tensor) {
    set(which, tensor.torch_dtype(), tensor.data(), cols_);
}

void Operands::write_statistic(normjit_tensor which, const Tensor& tensor) {
    set(which, tensor.torch_dtype(), tensor.data(), 0);
}

void Operands::set_per_slice(normjit_tensor gradient, TensorView weight) {
    if (is_per_slice(weight)) spec.per_slice |= 1u << (gradient == NORMJIT_DGAMMA ? NORMJIT_GAMMA : NORMJIT_BETA);
}

void Operands::write_weight(normjit_tensor which, const Tensor& tensor, TensorView weight) {
    set_per_slice(which, weight);
    set(which, tensor.torch_dtype(), tensor.data(), cols_);
}

void Operands::add_to(normjit_tensor which, TensorView tensor, TensorView weight) {
    set_per_slice(which, weight);
    set(which, tensor.torch_dtype(), tensor.mutable_data(), cols_);
    spec.accumulate |= 1u << which;
}

}  // namespace normjit::torch
