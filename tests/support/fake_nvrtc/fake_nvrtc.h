// SPDX-License-Identifier: Apache-2.0
// An NVRTC that compiles nothing: a shared library that a program opens through NORMJIT_NVRTC_PATH. No GPU could run
// its machine code, but the fake driver finds every kernel in it. It fails where a test says so.
#pragma once

#include <string>
#include <vector>

namespace normjit::test {

struct FakeNvrtc {
    int failing_call = -1;           ///< the call, counted from 0 in `calls`, that fails,
    int failure = 11;                ///< with this error
    std::vector<std::string> calls;  ///< error_string() is not counted
    int programs = 0;                ///< programs that were created and not destroyed

    /// Restores the initial state: no failures, empty records.
    void reset() { *this = FakeNvrtc(); }
};

}  // namespace normjit::test

/// The library exports this in addition to NVRTC's functions. Use it only while no other thread calls NVRTC.
extern "C" normjit::test::FakeNvrtc* normjit_fake_nvrtc();
