// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/machine.h"

#include "support/divide.h"

#include <algorithm>

namespace normjit::backend::cpu {

int64_t Machine::reserve(int64_t bytes, int64_t alignment) {
    const int64_t at = round_up(frame_bytes_, alignment);
    frame_bytes_ = at + bytes;
    return at;
}

Address Machine::saved_register(int64_t number) {
    saved_registers_ = std::max(saved_registers_, number + 1);
    return {.base = frame(), .offset = saved_at_ + number * register_bytes()};
}

}  // namespace normjit::backend::cpu
