// SPDX-License-Identifier: Apache-2.0
// Describes targets to LLVM, and compiles a module to an object file in memory.
#pragma once

#include "normjit/status.h"
#include "normjit/target.h"

#include <memory>
#include <string>

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace normjit::backend::llvmir {

/// The instructions that code for the target may use in addition to basic vector arithmetic.
struct Features {
    bool x86 = false;
    bool fma = false;    ///< if false, a product and a sum are rounded separately, because LLVM would call fmaf()
    bool half = false;   ///< conversions of f16 in hardware
    bool masks = false;  ///< masked loads and stores of every element width
    bool native_bf16 = false;
};
Features features_of(const Target& target);

/// Returns LLVM's target for the processor, and its triple; null if this LLVM was built without it.
const llvm::Target* find_target(const Target& target, std::string& triple);

/// Makes a target machine that rounds, fuses and keeps denormals exactly as the module specifies.
Expected<std::unique_ptr<llvm::TargetMachine>> make_machine(const Target& target);

/// Sets the attributes of a function for the target: the processor, its instructions, and the width of vectors.
void set_attributes(llvm::Function& function, const llvm::TargetMachine& machine, const Target& target);

/// Emits ELF for the linker in object.h. The module cannot be used afterwards.
Expected<llvm::SmallVector<char, 0>> emit_object(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace normjit::backend::llvmir
