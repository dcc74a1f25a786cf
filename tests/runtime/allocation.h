// SPDX-License-Identifier: Apache-2.0
// Every operator new of this program is counted, and may be told to fail.
#pragma once

#include <atomic>
#include <cstdint>

namespace normjit::test {

/// Allocations of all threads so far.
extern std::atomic<int64_t> allocations;

/// While it lives, `count` more allocations of this thread work and the one after them fails; those after that work.
class FailingAllocation {
  public:
    explicit FailingAllocation(int64_t count);
    ~FailingAllocation();
    static bool was_reached();
};

}  // namespace normjit::test
