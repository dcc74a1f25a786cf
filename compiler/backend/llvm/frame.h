// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/llvm/builder.h"

#include <functional>
#include <string>
#include <vector>

namespace normjit::backend::llvmir {

using EntryBody = std::function<void(llvm::Value* task, llvm::Value* is_second)>;

/// Emits an entry point `void name(const task*)` for each of one or two `names`. body(task, is_second) is the
/// arithmetic, in a function of its own that the entries call with denormals kept and rounding to nearest even; they
/// restore the caller's floating-point settings afterwards. The settings are not operands of arithmetic: LLVM may move
/// one across the other within a function, but not across a call.
void emit_entries(Builder& builder, llvm::Module& module, const llvm::TargetMachine& machine, const Target& target,
                  const std::vector<std::string>& names, const EntryBody& body);

}  // namespace normjit::backend::llvmir
