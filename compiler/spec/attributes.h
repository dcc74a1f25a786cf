// SPDX-License-Identifier: Apache-2.0
// Attributes that are lists of tensors: a text names the tensors, and the C struct has a bit for each.
#pragma once

#include "normjit/spec.h"

#include <algorithm>
#include <string_view>

namespace normjit {

struct Attribute {
    std::string_view key;
    std::string_view refusal;  ///< says why other tensors may not be named
    bool describes_layer;      ///< a text may also name tensors that no requested output depends on
    bool (*may_be_named)(Tensor tensor);
    bool (*has)(const Spec& spec, Tensor tensor);
    /// Gives the attribute to a tensor. Does nothing if the spec lacks the tensor.
    void (*give)(Spec& spec, Tensor tensor);
};

/// There is one for each ATTRIBUTE of keys.def.
namespace attributes {

inline constexpr Attribute accumulate{
    "accumulate",
    "only dgamma and dbeta, sums over the rows, can be added to",
    false,
    may_be_accumulated,
    [](const Spec& spec, Tensor tensor) { return spec.accumulates(tensor); },
    [](Spec& spec, Tensor tensor) {
        if (spec.has(tensor)) spec.tensors[tensor]->accumulate = true;
    },
};

/// A text names a tensor of the layer, and its gradient gets the attribute as well.
inline constexpr Attribute per_slice{
    "per_slice",
    "only gamma and beta, with their gradients, have a row per slice",
    true,
    [](Tensor tensor) { return may_be_per_slice(tensor) && may_be_read(tensor); },
    [](const Spec& spec, Tensor column) {
        return std::ranges::any_of(
            all_tensors, [&](Tensor tensor) { return layer_tensor(tensor) == column && spec.is_per_slice(tensor); });
    },
    [](Spec& spec, Tensor column) { spec.set_per_slice(column, true); },
};

}  // namespace attributes

}  // namespace normjit
