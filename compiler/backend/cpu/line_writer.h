// SPDX-License-Identifier: Apache-2.0
// Rows that do not fill lines, written past the caches in whole lines by way of the stack: x64/line_writer.h says how.
// Each machine has its own, the one thing of the nest that is not written once.
#pragma once

#include "backend/cpu/machine.h"

namespace normjit::backend::cpu {

class LineWriter {
  public:
    virtual ~LineWriter() = default;
    /// `next` and `stride` hold where the group's rows are in memory, and from here on where the next row belongs on
    /// the stack, and how far the one after it is from there.
    virtual void begin(Integer next, Integer stride) = 0;
    /// Full lines go to memory. Best long after the rows came: loads wait for the stores of which they read parts.
    virtual void write_lines(Integer next) = 0;
    /// Everything goes to memory.
    virtual void finish(Integer next) = 0;
};

}  // namespace normjit::backend::cpu
