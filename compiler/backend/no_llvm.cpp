// SPDX-License-Identifier: Apache-2.0
// What a build without LLVM says.
#include "normjit/list_instructions.h"

namespace normjit {

Expected<std::string> list_instructions(const Artifact&) { return unavailable("this build has no LLVM"); }

}  // namespace normjit
