// SPDX-License-Identifier: Apache-2.0
// What differs between the versions of LLVM that tools/cmake/llvm.cmake accepts.
#pragma once

#include <string>

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>

namespace normjit::backend::llvmir {

// CMake searches for headers and library separately, so they may differ.
static_assert(LLVM_VERSION_MAJOR == NORMJIT_LLVM_MAJOR);

// LLVM 21 takes a Triple where LLVM 20 took its text.
#if LLVM_VERSION_MAJOR >= 21
using GivenTriple = llvm::Triple;
#else
using GivenTriple = std::string;
#endif

/// An OptPassGate; shouldRunPass() is const since LLVM 21.
class ConstPassGate : public llvm::OptPassGate {
  public:
    virtual bool should_run(llvm::StringRef pass) const = 0;
#if LLVM_VERSION_MAJOR >= 21
    bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) const final { return should_run(pass); }
#else
    bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) final { return should_run(pass); }
#endif
};

}  // namespace normjit::backend::llvmir
