// SPDX-License-Identifier: Apache-2.0
// Stands for the LLVM back end in a build without LLVM.
#include "backend/backend.h"

namespace normjit::backend {

Expected<std::string> list_instructions(const Artifact&) { return unavailable("this build has no LLVM"); }

}  // namespace normjit::backend
