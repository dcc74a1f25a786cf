// SPDX-License-Identifier: Apache-2.0
// The arguments of normjit's operators: where each has them, and what they must be.
#pragma once

#include "torch_tensor.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace normjit::torch {

/// What a tensor is to an operator.
enum class Role : uint8_t { x, dy, residual, dresidual, mean, rstd, weight, bias, dweight, dbias };
constexpr size_t role_count = 10;

/// A tensor among an operator's arguments.
struct Place {
    int argument;  ///< its number
    Role role;
    const char* name;  ///< in the operator's schema
    bool optional;     ///< there: a "Tensor?"
};

/// Where an operator has its arguments, by their numbers; `none`: it has no such argument.
struct Signature {
    static constexpr int none = -1;

    normjit_norm norm;
    std::span<const Place> tensors;
    int normalized_shape;
    int eps = none, weight_offset = none;
    int statistics = none;  ///< whether mean and rstd are wanted, of a forward pass
    int mask = none;        ///< which of dx, dweight and dbias are wanted, of a backward pass
    size_t outputs;
    /// What serves a call that normjit cannot serve; null: nothing does. Its weights have no rows for slices.
    const char* torch_operator = nullptr;
};

/// What an operator is given. Nothing of it is owned.
struct Given {
    const TensorView& operator[](Role role) const { return tensors[static_cast<size_t>(role)]; }
    /// What the gradient of the bias is like; none where it has no use.
    const TensorView& beta_like() const { return (*this)[(*this)[Role::bias] ? Role::bias : Role::weight]; }

    std::array<TensorView, role_count> tensors;  ///< by Role; none where the operator has or gets none
    Device device{};                             ///< of all of them
    int64_t cols = 1;                            ///< elements of a row
    size_t row_dimensions = 0;                   ///< the last ones of x
    size_t slice_dimensions = 0;                 ///< the first ones of x for which weights have a row each
    double eps = 0, weight_offset = 0;
    bool statistics = false;
    std::array<bool, 3> wanted{};  ///< dx, dweight, dbias
};

/// The call is wrong, and no kernel may see it.
struct Invalid : Error {
    using Error::Error;
};

/// Reads the arguments of a call and checks shapes, types and devices, so that no kernel touches memory that is not the
/// tensors'. Throws Invalid, or Error for what torch's own operator may be able to do.
Given read(const Value* stack, const Signature& signature);

/// Frees what the caller of an operator handed over.
void consume(Value* stack, const Signature& signature);

}  // namespace normjit::torch
