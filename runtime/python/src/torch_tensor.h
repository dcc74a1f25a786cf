// SPDX-License-Identifier: Apache-2.0
// Tensors of libtorch, and their form as normjit's arguments.
#pragma once

#include "torch_shim.h"

#include "normjit/normjit.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace normjit::torch {

struct Device {
    int32_t type;  ///< torch's number for the type
    int32_t index;
};

/// A view of a tensor, or none. Valid as long as the tensor's owner. Frequently used properties are read once, because
/// calls into torch add up in the smallest backward passes.
class TensorView {
  public:
    TensorView() = default;
    explicit TensorView(Handle handle);

    Handle handle() const { return handle_; }
    explicit operator bool() const { return handle_ != nullptr; }
    size_t dimensions() const { return sizes_.size(); }
    std::span<const int64_t> sizes() const { return sizes_; }
    /// Returns a stride for each of sizes().
    const int64_t* strides() const;
    int64_t elements() const;
    bool is_contiguous() const;
    int32_t torch_dtype() const { return torch_dtype_; }
    /// Returns the type, or nothing if normjit does not have it.
    std::optional<normjit_dtype> dtype() const;
    Device device() const;
    /// Returns the data for reading. A copy-on-write tensor stays shared.
    const void* data() const;
    void* mutable_data() const;

  private:
    Handle handle_ = nullptr;
    std::span<const int64_t> sizes_;
    int32_t torch_dtype_ = 0;
};

class Tensor {
  public:
    Tensor() = default;  ///< makes none
    explicit Tensor(Handle owned, int32_t torch_dtype = 0) : handle_(owned), torch_dtype_(torch_dtype) {}
    Tensor(Tensor&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), torch_dtype_(other.torch_dtype_) {}
    Tensor& operator=(Tensor&& other) noexcept {
        std::swap(handle_, other.handle_), std::swap(torch_dtype_, other.torch_dtype_);
        return *this;
    }
    ~Tensor();

    /// Makes a contiguous, uninitialised tensor with the shape and type of `like`.
    static Tensor empty(TensorView like, Device device);
    /// Makes a statistic for each row of a tensor of this type, f32 or f64, with 1 in place of the last `normalized`
    /// dimensions.
    static Tensor empty_statistic(TensorView of, size_t normalized, Device device);
    static Tensor undefined();

    explicit operator bool() const { return handle_ != nullptr; }
    Handle handle() const { return handle_; }
    TensorView view() const { return TensorView(handle_); }
    int32_t torch_dtype() const { return torch_dtype_; }  ///< the type, if empty() made the tensor
    void* data() const;
    Handle release() { return std::exchange(handle_, nullptr); }

  private:
    static Tensor contiguous(std::span<const int64_t> sizes, int32_t torch_dtype, Device device);

    Handle handle_ = nullptr;
    int32_t torch_dtype_ = 0;
};

/// Returns a contiguous copy.
Tensor copy_of(TensorView tensor);

/// The strides of a matrix's rows, in elements. Its first dimensions are those of the slices; usually there are none.
struct RowStrides {
    int64_t row, slice;
};
/// Returns the strides of a matrix, or nothing if no such strides describe the tensor.
std::optional<RowStrides> row_strides(TensorView matrix, int64_t cols, size_t slice_dimensions);

/// The tensors of one launch, in the form in which normjit takes them. Their shapes have been checked. Owns the copies
/// that some tensors need.
class Operands {
  public:
    /// Begins a launch of a norm. A row of x is its last `row_dimensions` dimensions. `weight_slices` is 0 if weights
    /// have no slices; if weights have a row for each of x's first `weight_slices` dimensions, these are the slices.
    /// Otherwise there are slices if x is a view that needs them.
    Operands(normjit_norm norm, normjit_pass pass, TensorView x, int64_t cols, size_t row_dimensions,
             size_t weight_slices, double eps);

    /// Set the type and the argument of a matrix like x, of a weight, or of a statistic with an element for each row.
    void read_matrix(normjit_tensor which, TensorView tensor);
    void read_weight(normjit_tensor which, TensorView tensor);
    void read_statistic(normjit_tensor which, TensorView tensor);
    void write_matrix(normjit_tensor which, const Tensor& tensor);
    /// Sets the gradient of a weight.
    void write_weight(normjit_tensor which, const Tensor& tensor, TensorView weight);
    void write_statistic(normjit_tensor which, const Tensor& tensor);
    /// Adds the gradient of a weight to the old values of a contiguous tensor.
    void add_to(normjit_tensor which, TensorView tensor, TensorView weight);

    normjit_spec spec{};
    normjit_arguments arguments{};

  private:
    void set(normjit_tensor which, int32_t torch_dtype, void* data, int64_t cols);
    void set_strides(normjit_tensor which, RowStrides strides);
    bool is_per_slice(TensorView weight) const;
    void set_per_slice(normjit_tensor gradient, TensorView weight);
    TensorView contiguous(TensorView tensor);

    std::span<const int64_t> x_;  ///< the sizes of x
    int64_t cols_;
    size_t row_dimensions_;
    size_t slice_dimensions_;
    size_t weight_slices_;
    int64_t slices_ = 1;
    std::vector<Tensor> copies_;
};

}  // namespace normjit::torch
