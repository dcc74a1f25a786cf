// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/machine.h"

#include "support/divide.h"

namespace normjit::backend::cpu {

int64_t Machine::reserve(int64_t bytes, int64_t alignment) {
    const int64_t at = round_up(frame_bytes_, alignment);
    frame_bytes_ = at + bytes;
    return at;
}

}  // namespace normjit::backend::cpu
