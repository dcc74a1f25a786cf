// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/llvm/builder.h"

#include <functional>
#include <string>
#include <vector>

namespace normjit::backend::llvmir {

using EntryBody = std::function<void(llvm::Value* task, llvm::Value* is_second)>;

/// `void name(const task*)`, an entry point, for each of one or two `names`. body(task, is_second) is the arithmetic,
/// in a function of its own that the entries call with denormals kept and rounding to nearest even; the floating-point
/// settings of the caller are put back after it. They are no operands of arithmetic, so that LLVM may move one across
/// the other within a function, not across a call.
void emit_entries(Builder& builder, llvm::Module& module, const llvm::TargetMachine& machine, const Target& target,
                  const std::vector<std::string>& names, const EntryBody& body);

}  // namespace normjit::backend::llvmir
