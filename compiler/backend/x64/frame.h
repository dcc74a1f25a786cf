// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/x64/assembler.h"

namespace normjit::backend::x64 {

/// Entry and exit of a generated function. It saves the callee-saved registers and MXCSR, makes a frame of `bytes` (a
/// multiple of 64) at rsp, and sets MXCSR to its default: denormals are kept, rounding is to nearest even. leave()
/// restores them and returns.
class Frame {
  public:
    Frame(Assembler& assembler, int bytes);
    void leave();

  private:
    Assembler& a_;
    int bytes_;
};

}  // namespace normjit::backend::x64
