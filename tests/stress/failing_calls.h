// SPDX-License-Identifier: Apache-2.0
// Makes system calls of normjit's own sources fail; calls of libraries are not affected. The linker (--wrap) puts
// failing_calls.cpp in between.
#pragma once

#include <cstdint>
#include <string>

namespace normjit::test {

/// While it lives, `count` more calls of this thread work; then the fault begins.
class FailingCall {
  public:
    enum class How {
        once,     ///< the next call fails, later ones work
        from_on,  ///< all later calls fail: a full disk, a table without room
        cut,      ///< the next read or write takes one byte
        kill,     ///< the process dies by SIGKILL in the next call, in a write after half of its bytes
    };
    FailingCall(int64_t count, How how, int error = 0);
    ~FailingCall();
    FailingCall(const FailingCall&) = delete;
    FailingCall& operator=(const FailingCall&) = delete;

    /// True if a call failed in the last scope of this thread; keeps the first one's name.
    static bool was_reached();
    static const std::string& name();
    static int64_t calls();  ///< counts the calls in the last scope of this thread
};

}  // namespace normjit::test
