// SPDX-License-Identifier: Apache-2.0
// The generated CUDA file of a plan. It is short: operand types, the formula sweep by sweep with the names of the IR,
// the numbers of each path's schedule, and the kernels. Loads, staging, reductions and stores are in templates/cuda.
//
//     struct Formula {
//         using Math = float;
//         using Matrices = List<bf16, bf16>;  // x, dy
//         ...
//         static __device__ __forceinline__ void element(Index<0>, const Row& row, const Math* m, ...) {
//             const Math x = m[0], dy = m[1], gamma = c[0];
//             const Math xhat = (x - row.mean) * row.rstd;
//             ...
//     struct Plan : Formula {
//         static constexpr int threads_per_row = 256, rows_per_block = 1, ...
//     };
//     struct UnalignedPlan : Formula { ... };
//     extern "C" __global__ void __launch_bounds__(256, 2) normjit_layernorm_backward_bf16_4096_rows(...) { ... }
//     ... normjit_layernorm_backward_bf16_4096_rows_unaligned(...) { ... }
//     ... normjit_layernorm_backward_bf16_4096_final_reduce(...) { ... }
#pragma once

#include "plan/plan.h"

#include <string>

namespace normjit::backend::cuda {

std::string print_source(const plan::Plan& plan);

/// Returns the `struct Formula` of the file, which templates/cuda/plan.cuh describes (formula_source.cpp).
std::string print_formula(const plan::Plan& plan);
/// Returns its types and constants (formula_constants.cpp).
std::string print_constants(const plan::Plan& plan);

/// True if the last launch sums the partials.
inline bool has_final_reduce(const plan::Plan& plan) {
    return !plan.operands.reductions().empty() && !plan.cuda().one_group;
}

/// True if a sweep reads the tensor to compute elements or columns.
bool reads(const plan::Plan& plan, const plan::Sweep& sweep, Tensor tensor);

}  // namespace normjit::backend::cuda
