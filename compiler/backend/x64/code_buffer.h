// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace normjit::backend::x64 {

/// The memory for generated code. It is a base class so that it exists before Xbyak's generator. The code starts at a
/// cache line, because Xbyak aligns addresses and the same input must give the same bytes. The start is rounded up by
/// hand: an aligned allocation would leave a hole that glibc before 2.38 never fills again (bug 14581, NOTES N-208).
class CodeBuffer {
  public:
    static constexpr size_t bytes = 256 << 10;
    uint8_t* start() {
        void* first = memory_.get();
        size_t space = bytes + line_bytes - 1;
        return static_cast<uint8_t*>(std::align(line_bytes, bytes, first, space));
    }

  private:
    static constexpr size_t line_bytes = 64;
    std::unique_ptr<uint8_t[]> memory_ = std::make_unique_for_overwrite<uint8_t[]>(bytes + line_bytes - 1);
};

}  // namespace normjit::backend::x64
