// SPDX-License-Identifier: Apache-2.0
// Memory from the C library that is freed automatically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace normjit {

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<void, Free>;

/// Returns at least `bytes` bytes, aligned to `alignment`, or null if the system has no more memory.
inline AlignedMemory allocate_aligned(int64_t alignment, int64_t bytes) {
    const int64_t rounded = (bytes / alignment + 1) * alignment;
    return AlignedMemory(std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded)));
}

}  // namespace normjit
