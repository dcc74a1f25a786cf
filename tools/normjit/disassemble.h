// SPDX-License-Identifier: Apache-2.0
// Prints machine code as text.
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <string>

namespace normjit::cli {

/// Returns one instruction per line, in Intel syntax for x86-64, with a label where each entry point starts. Uses LLVM,
/// or in a build without LLVM objdump, which knows only x86-64. Fails with `unavailable` if there is neither.
Expected<std::string> disassemble(const Artifact& artifact);
Expected<std::string> disassemble_with_objdump(const Artifact& artifact);

/// Returns the SASS of an artifact with a cubin. Fails with `unavailable` if there is no nvdisasm.
Expected<std::string> disassemble_cuda(const Artifact& artifact);

}  // namespace normjit::cli
