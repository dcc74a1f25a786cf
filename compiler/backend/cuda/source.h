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

}  // namespace normjit::backend::cuda
