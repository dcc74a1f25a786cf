// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/x64/assembler.h"

namespace normjit::backend::x64 {

/// Entry and exit of a generated function. Saves the callee-saved registers and MXCSR, makes a frame of `bytes` at rsp,
/// a multiple of 64, and sets MXCSR to its default, in which denormals are kept and rounding is to nearest even;
/// leave() undoes it and returns.
class Frame {
  public:
    Frame(Assembler& assembler, int bytes);
    void leave();

  private:
    Assembler& a_;
    int bytes_;
};

}  // namespace normjit::backend::x64
