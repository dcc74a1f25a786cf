// SPDX-License-Identifier: Apache-2.0
// Implements Machine, which the loop nest of cpu/ uses, on every processor that LLVM supports: IR instructions with
// explicit vectors. [M] values are scalars, one row at a time. Part of a row of the last sweep
// (tests/golden/rmsnorm_llvm.golden):
//
//     %39 = mul nsw i64 %35, 4;  %40 = getelementptr i8, ptr %frame, i64 %39
//     %41 = load float, ptr %40, align 4                                broadcast(rstd)
//     %.splat = shufflevector <4 x float> %.splatinsert, ...
//     %x = load <4 x float>, ptr %43, align 4                           load(x)
//     %dy = load <4 x float>, ptr %45, align 4                          load(dy)
//     %dy_rstd = fmul <4 x float> %dy, %.splat                          compute(mul)
//     %46 = call <4 x float> @llvm.fma.v4f32(%dy_rstd, %x, %38)         add_product(sum): %38 is the loop's phi
#pragma once

#include "backend/cpu/machine.h"
#include "backend/llvm/builder.h"

#include <memory>

namespace normjit::backend::llvmir {

/// Makes a machine that emits one function at the builder's position. `writes_lines` is one bit, for code with a
/// NonTemporalStaging.
std::unique_ptr<Machine> llvm_machine(Builder& builder, llvm::Value* task, llvm::Value* writes_lines);

}  // namespace normjit::backend::llvmir
