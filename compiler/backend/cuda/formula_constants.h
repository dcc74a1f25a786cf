// SPDX-License-Identifier: Apache-2.0
// The types and constants of a generated `struct Formula`, which templates/cuda/plan.cuh describes.
#pragma once

#include "plan/plan.h"

#include <string>

namespace normjit::backend::cuda {

std::string print_constants(const plan::Plan& plan);

/// True if the last launch sums the partials.
inline bool has_final_reduce(const plan::Plan& plan) {
    return !plan.operands.reductions().empty() && !plan.cuda().one_group;
}

/// True if a sweep reads the tensor to compute elements or columns.
bool reads(const plan::Plan& plan, const plan::Sweep& sweep, Tensor tensor);

}  // namespace normjit::backend::cuda
