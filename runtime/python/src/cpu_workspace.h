// SPDX-License-Identifier: Apache-2.0
// Workspace for launches on a CPU.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace normjit::python {

/// Returns this thread's workspace, which is kept for its next launch; null if memory is short.
inline void* cpu_workspace(int64_t bytes) {
    thread_local std::unique_ptr<void, decltype(&std::free)> memory(nullptr, std::free);
    thread_local int64_t size = 0;
    if (bytes > size) {
        size = (bytes + 63) / 64 * 64;
        memory.reset(std::aligned_alloc(64, static_cast<size_t>(size)));
        if (memory == nullptr) size = 0;
    }
    return memory.get();
}

}  // namespace normjit::python
