// SPDX-License-Identifier: Apache-2.0
// Where an engine reports what it has noticed. The library itself prints nothing.
#pragma once

#include <cstdint>

namespace normjit {

/// `info`: something was done that takes time. `warning`: something does not work as requested, and the engine goes on
/// without it.
enum class LogLevel : uint8_t { info, warning };

/// write(self, level, message) receives one line of text, from any thread and from several at once. It must neither
/// call the engine nor throw. Null: no log.
struct Log {
    void (*write)(void* self, LogLevel level, const char* message) = nullptr;
    void* self = nullptr;

    /// Writes a message. Escapes control characters, which names of files may contain.
    void operator()(LogLevel level, const char* message) const;
};

}  // namespace normjit
