// SPDX-License-Identifier: Apache-2.0
// The phases of a plan as functions of cpu_abi.h, each at the builder's current position.
#pragma once

#include "backend/llvm/builder.h"
#include "plan/plan.h"

namespace normjit::backend::llvmir {

/// `task` is a const RowsTask*; `realigns`, with Caching::realign, a bit: whether dx goes by way of the stack.
void emit_rows(Builder& builder, const plan::Plan& plan, Caching caching, llvm::Value* task,
               llvm::Value* realigns = nullptr);

/// Sweep `sweep` alone, over a part of the columns. The plan must stage no columns. `task` is a const SweepTask*.
void emit_sweep(Builder& builder, const plan::Plan& plan, size_t sweep, Caching caching, llvm::Value* task);

/// `task` is a const FinalTask*.
void emit_final_reduce(Builder& builder, const plan::Plan& plan, llvm::Value* task);

}  // namespace normjit::backend::llvmir
