// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/llvm/builder.h"

#include <functional>
#include <string>
#include <vector>

namespace normjit::backend::llvmir {

using EntryBody = std::function<void(llvm::Value* task, llvm::Value* is_second)>;

/// Emits an entry point `void name(const task*)` for each of one or two `names`. body(task, is_second) emits the
/// arithmetic into a separate function, which the entries call with denormals kept and rounding to nearest even;
/// afterwards they restore the caller's floating-point mode. Arithmetic does not have the mode as an operand, so
/// LLVM may move it across a change of mode within a function, but not across a call.
void emit_entries(Builder& builder, llvm::Module& module, const llvm::TargetMachine& machine, const Target& target,
                  const std::vector<std::string>& names, const EntryBody& body);

}  // namespace normjit::backend::llvmir
