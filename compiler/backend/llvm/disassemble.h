// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>

#include <llvm/ADT/ArrayRef.h>

namespace normjit::backend::llvmir {

/// Implements list_instructions(), for code whose functions start at `entries`.
Expected<std::string> disassemble(const normjit::Target& target, llvm::ArrayRef<uint8_t> code,
                                  llvm::ArrayRef<int64_t> entries);

}  // namespace normjit::backend::llvmir
