// SPDX-License-Identifier: Apache-2.0
// A tool that listens to NVTX: it notes what it is told.
#pragma once

#include <string>
#include <vector>

namespace normjit::test {

struct FakeNvtx {
    bool refuses = false;             ///< does not start
    std::vector<std::string> events;  ///< "domain D", "push D: text", "pop D", each with its thread's depth before it
    unsigned version = 0;             ///< of the program's protocol
};

}  // namespace normjit::test

/// The record of this library, which is one for all threads: read it while nobody tells anything.
extern "C" normjit::test::FakeNvtx* normjit_fake_nvtx();
