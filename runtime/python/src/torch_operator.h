// SPDX-License-Identifier: Apache-2.0
// The arguments of normjit's operators: the position of each, and what it must be.
#pragma once

#include "torch_tensor.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace normjit::torch {

/// The role of a tensor in an operator.
enum class Role : uint8_t { x, dy, residual, dresidual, mean, rstd, weight, bias, dweight, dbias };
constexpr size_t role_count = 10;

/// A tensor among an operator's arguments.
struct Place {
    int argument;  ///< its index among the arguments
    Role role;
    const char* name;  ///< its name in the operator's schema
    bool optional;     ///< true if the schema has a "Tensor?"
};

/// The positions of an operator's arguments; `none` if it has no such argument.
struct Signature {
    static constexpr int none = -1;

    normjit_norm norm;
    std::span<const Place> tensors;
    int normalized_shape;
    int eps = none, weight_offset = none;
    int statistics = none;  ///< says whether mean and rstd are wanted, for a forward pass
    int mask = none;        ///< says which of dx, dweight and dbias are wanted, for a backward pass
    size_t outputs;
    /// The operator for calls that normjit cannot serve, or null. Its weights have no rows per slice.
    const char* torch_operator = nullptr;
};

/// The arguments of a call. This owns nothing.
struct Given {
    const TensorView& operator[](Role role) const { return tensors[static_cast<size_t>(role)]; }
    /// Returns the tensor whose shape and type the gradient of the bias has; none if that gradient is not wanted.
    const TensorView& beta_like() const { return (*this)[(*this)[Role::bias] ? Role::bias : Role::weight]; }

    std::array<TensorView, role_count> tensors;  ///< indexed by Role; none if the operator does not have or did not get
                                                 ///< the tensor
    Device device{};                             ///< the device of all tensors
    int64_t cols = 1;                            ///< the number of elements in a row
    size_t row_dimensions = 0;                   ///< how many of the last dimensions of x are a row
    size_t slice_dimensions = 0;                 ///< how many of the first dimensions of x have their own rows of
                                                 ///< weights
    double eps = 0, weight_offset = 0;
    bool statistics = false;
    std::array<bool, 3> wanted{};  ///< whether dx, dweight and dbias are wanted
};

/// Thrown for a wrong call, which must not be passed on to torch's kernel either.
struct Invalid : Error {
    using Error::Error;
};

/// Reads the arguments of a call and checks shapes, types and devices, so that no kernel touches memory outside the
/// tensors. Throws Invalid, or Error if torch's own operator may be able to serve the call.
Given read(const Value* stack, const Signature& signature);

/// Frees the arguments that the caller of an operator handed over.
void consume(Value* stack, const Signature& signature);

}  // namespace normjit::torch
