// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/code_buffer.h"

namespace normjit::backend::x64 {

uint8_t* CodeBuffer::start() {
    void* first = memory_.get();
    size_t space = bytes + line_bytes - 1;
    return static_cast<uint8_t*>(std::align(line_bytes, bytes, first, space));
}

}  // namespace normjit::backend::x64
