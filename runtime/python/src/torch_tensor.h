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

/// A tensor that somebody else owns, good as long as that one is; or none.
class TensorView {
  public:
    explicit TensorView(Handle handle) : handle_(handle) {}

    Handle handle() const { return handle_; }
    explicit operator bool() const { return handle_ != nullptr; }
    std::span<const int64_t> sizes() const;
    /// With as many elements as sizes().
    const int64_t* strides() const;
    int64_t elements() const;
    bool is_contiguous() const;
    int32_t torch_dtype() const;
    /// Nothing for types that normjit has not.
    std::optional<normjit_dtype> dtype() const;
    Device device() const;
    /// Leaves a copy-on-write tensor shared.
    const void* data() const;
    void* mutable_data() const;

  private:
    Handle handle_;
};

class Tensor {
  public:
    Tensor() = default;  ///< none
    explicit Tensor(Handle owned) : handle_(owned) {}
    Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Tensor& operator=(Tensor&& other) noexcept {
        std::swap(handle_, other.handle_);
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
    TensorView view() const { return TensorView(handle_); }
    Handle release() { return std::exchange(handle_, nullptr); }

  private:
    static Tensor contiguous(std::span<const int64_t> sizes, int32_t torch_dtype, Device device);

    Handle handle_ = nullptr;
};

/// Contiguous copy.
Tensor copy_of(TensorView tensor);

/// A tensor as rows of `cols` elements, with one stride from row to row; nothing when none describes it.
std::optional<int64_t> row_stride(TensorView tensor, int64_t cols);

/// Tensors of one launch as normjit takes them; keeps the copies that some need.
class Operands {
  public:
    /// Those of a norm of any number of rows, at first none.
    Operands(normjit_norm norm, normjit_pass pass, int64_t cols, double eps);

    /// Sets the types and the arguments of [M,N] tensors, and of [N] and [M], where `cols` is 0.
    void read_matrix(normjit_tensor which, TensorView tensor, int64_t cols);
    void read_vector(normjit_tensor which, TensorView tensor, int64_t cols);
    void write(normjit_tensor which, const Tensor& tensor, int64_t cols);
    /// Adds to what the tensor holds, which must be contiguous and have `cols` elements.
    void add_to(normjit_tensor which, TensorView tensor, int64_t cols);

    normjit_spec spec{};
    normjit_arguments arguments{};

  private:
    void set(normjit_tensor which, TensorView tensor, void* data, int64_t cols, int64_t stride);
    std::vector<Tensor> copies_;
};

}  // namespace normjit::torch
