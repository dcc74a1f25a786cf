// SPDX-License-Identifier: Apache-2.0
// A tool that listens to NVTX and records what it receives.
#pragma once

#include <string>
#include <vector>

namespace normjit::test {

struct FakeNvtx {
    bool refuses = false;             ///< the tool fails to start
    std::vector<std::string> events;  ///< lines "domain D", "push D: text", "pop D", each preceded by the depth of its
                                      ///< thread
    unsigned version = 0;             ///< the version of the program's protocol
};

}  // namespace normjit::test

/// Returns the record of this library, which all threads share. Read it while nobody calls the tool.
extern "C" normjit::test::FakeNvtx* normjit_fake_nvtx();
