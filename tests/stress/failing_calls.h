// SPDX-License-Identifier: Apache-2.0
// Makes system calls of normjit's own sources fail; calls of libraries are not affected. The linker (--wrap) inserts
// failing_calls.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace normjit::test {

/// For its lifetime, `count` more calls of this thread work, and then the fault begins.
class FailingCall {
  public:
    enum class How {
        once,     ///< the next call fails, and later ones work
        from_on,  ///< all later calls fail: a full disk, a table without room
        cut,      ///< the next read or write takes one byte
        kill,     ///< the process dies by SIGKILL in the next call, in a write after half of its bytes
    };
    FailingCall(int64_t count, How how, int error = 0);
    ~FailingCall();
    FailingCall(const FailingCall&) = delete;
    FailingCall& operator=(const FailingCall&) = delete;

    /// True if a call failed in the last scope of this thread. Keeps the name of the first one.
    static bool was_reached();
    static const std::string& name();
    static int64_t calls();  ///< the number of calls in the last scope of this thread
};

}  // namespace normjit::test
