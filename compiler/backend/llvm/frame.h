// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/llvm/builder.h"

namespace normjit::backend::llvmir {

/// `void name(const task*)`, an entry point. body(task) is the arithmetic, in a function of its own that the entry
/// calls with denormals kept and rounding to nearest even; the floating-point settings of the caller are put back after
/// it. They are no operands of arithmetic, so that LLVM may move one across the other within a function, not across a
/// call.
void emit_entry(Builder& builder, llvm::Module& module, const llvm::TargetMachine& machine, const Target& target,
                const char* name, const std::function<void(llvm::Value* task)>& body);

}  // namespace normjit::backend::llvmir
