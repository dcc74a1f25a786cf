// SPDX-License-Identifier: Apache-2.0
// Calls of the operating system that fail, as normjit's own sources make them; libraries' calls are left alone. The
// linker (--wrap) puts failing_calls.cpp between the two.
#pragma once

#include <cstdint>
#include <string>

namespace normjit::test {

/// While it lives, `count` more calls of this thread work, and what follows does not.
class FailingCall {
  public:
    enum class How {
        once,     ///< the next call fails, those after it work
        from_on,  ///< all that follow fail: a full disk, a table without room
        cut,      ///< the next read or write takes one byte
        kill,     ///< the process dies by SIGKILL in the next call, of a write after half of its bytes
    };
    FailingCall(int64_t count, How how, int error = 0);
    ~FailingCall();
    FailingCall(const FailingCall&) = delete;
    FailingCall& operator=(const FailingCall&) = delete;

    /// Whether a call failed, in the last scope of this thread, and the first that did.
    static bool was_reached();
    static const std::string& name();
    static int64_t calls();  ///< in the last scope of this thread
};

}  // namespace normjit::test
