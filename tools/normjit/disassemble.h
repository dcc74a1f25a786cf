// SPDX-License-Identifier: Apache-2.0
// Machine code as text, through the disassembler of the machine.
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <string>

namespace normjit::cli {

/// Intel syntax, one instruction a line, with a label where each entry point starts. Fails with `unavailable` when
/// there is no objdump to run.
Expected<std::string> disassemble(const Artifact& artifact);

/// SASS of one path of an artifact with cubins. Fails with `unavailable` when there is no nvdisasm to run.
Expected<std::string> disassemble_cuda(const Artifact& artifact, const CudaPath& path);

}  // namespace normjit::cli
