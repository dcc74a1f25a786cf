// SPDX-License-Identifier: Apache-2.0
// Turns an object file into one piece of code that can run at any address, for an artifact to carry.
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace normjit::backend::llvmir {

struct LinkedCode {
    std::vector<uint8_t> bytes;       ///< functions, then constants
    std::vector<EntryPoint> entries;  ///< all functions, in order
};

/// Lays out the sections and resolves the references between them, all of which are relative. Fails if the code refers
/// to anything outside, because generated code calls nothing.
Expected<LinkedCode> link(llvm::ArrayRef<char> object);

}  // namespace normjit::backend::llvmir
