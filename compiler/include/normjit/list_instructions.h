// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <string>

namespace normjit {

/// The machine code of a CPU artifact from its first byte to its last, constants taken for instructions too: one line
/// each with its address, "  1f:\tret", and what it reads relative to itself, "# 0x23c0". Intel syntax for x86-64.
/// `unavailable` in a build without LLVM.
Expected<std::string> list_instructions(const Artifact& artifact);

}  // namespace normjit
