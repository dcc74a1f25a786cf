// SPDX-License-Identifier: Apache-2.0
// The arguments of normjit's operators: the position of each, and what they must be.
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

/// The positions of an operator's arguments; `none`: it has no such argument.
struct Signature {
    static constexpr int none = -1;

    normjit_norm norm;
    std::span<const Place> tensors;
    int normalized_shape;
    int eps = none, weight_offset = none;
    int statistics = none;  ///< the argument that says whether mean and rstd are wanted, for a forward pass
    int mask = none;        ///< the argument that says which of dx, dweight and dbias are wanted, for a backward pass
    size_t outputs;
    /// The operator for calls that normjit cannot serve, or null. Its weights have no rows for slices.
    const char* torch_operator = nullptr;
};

/// The arguments of a call. It owns nothing.
struct Given {
    const TensorView& operator[](Role role) const { return tensors[static_cast<size_t>(role)]; }
    /// Returns the tensor whose shape and type the bias's gradient has; none if that is not needed.
    const TensorView& beta_like() const { return (*this)[(*this)[Role::bias] ? Role::bias : Role::weight]; }

    std::array<TensorView, role_count> tensors;  ///< tensors by Role; none if the operator has or gets none
    Device device{};                             ///< the device of all tensors
    int64_t cols = 1;                            ///< number of elements of a row
    size_t row_dimensions = 0;                   ///< the last dimensions of x
    size_t slice_dimensions = 0;                 ///< the first dimensions of x for which weights have a row each
    double eps = 0, weight_offset = 0;
    bool statistics = false;
    std::array<bool, 3> wanted{};  ///< whether dx, dweight and dbias are wanted
};

/// Thrown for a wrong call that must not be passed on to torch's kernel either.
struct Invalid : Error {
    using Error::Error;
};

/// Reads the arguments of a call and checks shapes, types and devices, so that no kernel touches memory outside the
/// tensors. Throws Invalid, or Error for calls that torch's own operator may be able to serve.
Given read(const Value* stack, const Signature& signature);

/// Frees the arguments that the caller of an operator handed over.
void consume(Value* stack, const Signature& signature);

}  // namespace normjit::torch
