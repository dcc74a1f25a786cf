// SPDX-License-Identifier: Apache-2.0
// The outputs of a spec with a formula. The text is evaluated in double, row by row, and differentiated in reverse,
// with the error bounds of reference.h.
#pragma once

#include "reference.h"

namespace normjit::reference {

/// Does what compute_repeated() does, for a spec with a formula.
Gradients compute_formula(const Spec& spec, Batch made, int64_t rows, const PerTensor<std::vector<double>>& inputs);

/// Returns the elements of the tensors that the forward pass of a backward spec saved, with rows packed.
PerTensor<std::vector<double>> saved_values(const Spec& spec, Batch batch,
                                            const PerTensor<std::vector<double>>& inputs);

}  // namespace normjit::reference
