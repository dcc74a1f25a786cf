// SPDX-License-Identifier: Apache-2.0
#include "spec/attributes.h"

#include <algorithm>

namespace normjit::attributes {

const Attribute accumulate{
    .key = "accumulate",
    .may_be_named = may_be_accumulated,
    .refusal = "only dgamma and dbeta, sums over the rows, can be added to",
    .has = [](const Spec& spec, Tensor tensor) { return spec.accumulates(tensor); },
    .give =
        [](Spec& spec, Tensor tensor) {
            if (spec.has(tensor)) spec.tensors[tensor]->accumulate = true;
        },
    .describes_layer = false,
};

/// A tensor of the layer is named; its gradient has the attribute as well.
const Attribute per_slice{
    .key = "per_slice",
    .may_be_named = [](Tensor tensor) { return may_be_per_slice(tensor) && may_be_read(tensor); },
    .refusal = "only gamma and beta, with their gradients, have a row per slice",
    .has =
        [](const Spec& spec, Tensor column) {
            return std::ranges::any_of(all_tensors, [&](Tensor tensor) {
                return layer_tensor(tensor) == column && spec.is_per_slice(tensor);
            });
        },
    .give = [](Spec& spec, Tensor column) { spec.set_per_slice(column, true); },
    .describes_layer = true,
};

}  // namespace normjit::attributes
