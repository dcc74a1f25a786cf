// SPDX-License-Identifier: Apache-2.0
// Keeps machine code in pages that are never writable and executable at the same time.
#pragma once

#include "normjit/status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace normjit::cpu {

/// Checks with one page whether this process may run code that it makes. The error, `unavailable`, says what the system
/// refused: SELinux without execmem, systemd's MemoryDenyWriteExecute and system call filters forbid it.
Status can_run_made_code();

class ExecutableMemory {
  public:
    /// Copies `code`, which must not be empty, to the start of a page. Fails if the system provides no such pages.
    static Expected<ExecutableMemory> make(std::span<const uint8_t> code);

    const void* data() const { return pages_.get(); }

    /// Returns the function that starts `offset` bytes into the code.
    template <class Function>
    Function function(int64_t offset) const {
        return reinterpret_cast<Function>(static_cast<std::byte*>(pages_.get()) + offset);
    }

  private:
    struct Unmap {
        size_t bytes;
        void operator()(void* pages) const;
    };
    ExecutableMemory(void* pages, size_t bytes) : pages_(pages, Unmap{bytes}) {}

    std::unique_ptr<void, Unmap> pages_;
};

}  // namespace normjit::cpu
