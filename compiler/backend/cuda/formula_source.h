// SPDX-License-Identifier: Apache-2.0
// The `struct Formula` of a generated file, which templates/cuda/plan.cuh describes.
#pragma once

#include "plan/plan.h"

#include <string>

namespace normjit::backend::cuda {

std::string print_formula(const plan::Plan& plan);

}  // namespace normjit::backend::cuda
