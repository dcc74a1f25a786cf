// SPDX-License-Identifier: Apache-2.0
// Tensors of libtorch, and as normjit's arguments.
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
    int32_t type;  ///< torch's number
    int32_t index;
};

/// A tensor that somebody else owns, good as long as that one is; or none. What kernels ask for again and again is read
/// once: each call into torch takes 4 ns, of the 6 us that its smallest backward pass takes.
class TensorView {
  public:
    TensorView() = default;
    explicit TensorView(Handle handle);

    Handle handle() const { return handle_; }
    explicit operator bool() const { return handle_ != nullptr; }
    size_t dimensions() const { return sizes_.size(); }
    std::span<const int64_t> sizes() const { return sizes_; }
    /// With as many elements as sizes().
    const int64_t* strides() const;
    int64_t elements() const;
    bool is_contiguous() const;
    int32_t torch_dtype() const { return torch_dtype_; }
    /// Nothing for types that normjit has not.
    std::optional<normjit_dtype> dtype() const;
    Device device() const;
    /// Leaves a copy-on-write tensor shared.
    const void* data() const;
    void* mutable_data() const;

  private:
    Handle handle_ = nullptr;
    std::span<const int64_t> sizes_;
    int32_t torch_dtype_ = 0;
};

class Tensor {
  public:
    Tensor() = default;  ///< none
    explicit Tensor(Handle owned, int32_t torch_dtype = 0) : handle_(owned), torch_dtype_(torch_dtype) {}
    Tensor(Tensor&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), torch_dtype_(other.torch_dtype_) {}
    Tensor& operator=(Tensor&& other) noexcept {
        std::swap(handle_, other.handle_), std::swap(torch_dtype_, other.torch_dtype_);
        return *this;
    }
    ~Tensor();

    /// Contiguous and uninitialised, with the shape and the type of `like`.
    static Tensor empty(TensorView like, Device device);
    /// A statistic of each row of a tensor of this type, f32 or f64, with 1 in the place of the last `normalized`
    /// dimensions.
    static Tensor empty_statistic(TensorView of, size_t normalized, Device device);
    static Tensor undefined();

    explicit operator bool() const { return handle_ != nullptr; }
    Handle handle() const { return handle_; }
    TensorView view() const { return TensorView(handle_); }
    int32_t torch_dtype() const { return torch_dtype_; }  ///< of one that empty() made
    void* data() const;
    Handle release() { return std::exchange(handle_, nullptr); }

  private:
    static Tensor contiguous(std::span<const int64_t> sizes, int32_t torch_dtype, Device device);

    Handle handle_ = nullptr;
    int32_t torch_dtype_ = 0;
};

/// Contiguous copy.
Tensor copy_of(TensorView tensor);

/// How the rows of a matrix stand in memory, in elements. Its first dimensions are those of the slices, none as a rule.
struct RowStrides {
    int64_t row, slice;
};
/// Nothing when no such strides describe the tensor.
std::optional<RowStrides> row_strides(TensorView matrix, int64_t cols, size_t slice_dimensions);

/// Tensors of one launch as normjit takes them, whose shapes have been checked; keeps the copies that some need.
class Operands {
  public:
    /// Begins a launch of a norm of the rows of x, its last `row_dimensions`. Weights of a row leave `weight_slices` 0; those that have
    /// a row for each of x's first so many dimensions make them slices. Else there are slices where x, a view, needs
    /// them.
    Operands(normjit_norm norm, normjit_pass pass, TensorView x, int64_t cols, size_t row_dimensions,
             size_t weight_slices, double eps);

    /// Sets the type and the argument of a tensor with as many elements as x, of a weight, or of a statistic of each
    /// row.
    void read_matrix(normjit_tensor which, TensorView tensor);
    void read_weight(normjit_tensor which, TensorView tensor);
    void read_statistic(normjit_tensor which, TensorView tensor);
    void write_matrix(normjit_tensor which, const Tensor& tensor);
    /// The gradient of a weight.
    void write_weight(normjit_tensor which, const Tensor& tensor, TensorView weight);
    void write_statistic(normjit_tensor which, const Tensor& tensor);
    /// Adds the gradient of a weight to what the tensor holds, which is contiguous.
    void add_to(normjit_tensor which, TensorView tensor, TensorView weight);

    normjit_spec spec{};
    normjit_arguments arguments{};

  private:
    void set(normjit_tensor which, int32_t torch_dtype, void* data, int64_t cols);
    void set_strides(normjit_tensor which, RowStrides strides);
    bool is_per_slice(TensorView weight) const;
    void set_per_slice(normjit_tensor gradient, TensorView weight);
    TensorView contiguous(TensorView tensor);

    std::span<const int64_t> x_;  ///< its sizes
    int64_t cols_;
    size_t row_dimensions_;
    size_t slice_dimensions_;
    size_t weight_slices_;
    int64_t slices_ = 1;
    std::vector<Tensor> copies_;
};

}  // namespace normjit::torch
