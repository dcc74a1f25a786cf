// SPDX-License-Identifier: Apache-2.0
// The compiler's side of module.h.
#pragma once

#include "backend/llvm/module.h"

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <string>
#include <vector>

namespace normjit::backend::llvmir {

struct Answered {
    std::vector<EntryPoint> entries;
    std::string bytes;
};

/// Asks the library, which is opened once per process.
Expected<Answered> ask(const Question& question);

}  // namespace normjit::backend::llvmir
