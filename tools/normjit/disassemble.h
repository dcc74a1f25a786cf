// SPDX-License-Identifier: Apache-2.0
// Machine code as text, through the disassembler of the machine.
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <string>

namespace normjit::cli {

/// One instruction a line, Intel syntax for x86-64, with a label where each entry point starts. Through LLVM, in a
/// build without it through objdump, which knows x86-64 only; fails with `unavailable` when there is none to run.
Expected<std::string> disassemble(const Artifact& artifact);
Expected<std::string> disassemble_with_objdump(const Artifact& artifact);

/// SASS of an artifact with a cubin. Fails with `unavailable` when there is no nvdisasm to run.
Expected<std::string> disassemble_cuda(const Artifact& artifact);

}  // namespace normjit::cli
