// SPDX-License-Identifier: Apache-2.0
// The `struct Formula` of a generated file: what templates/cuda/plan.cuh says of it.
#pragma once

#include "plan/plan.h"

#include <string>

namespace normjit::backend::cuda {

std::string print_formula(const plan::Plan& plan);

/// True if the last launch sums the partials.
inline bool has_final_reduce(const plan::Plan& plan) {
    return !plan.operands.reductions().empty() && !plan.cuda().one_group;
}

}  // namespace normjit::backend::cuda
