// SPDX-License-Identifier: Apache-2.0
// Counts every operator new of this program, and can make it fail.
#pragma once

#include <atomic>
#include <cstdint>

namespace normjit::test {

/// Allocations of all threads so far.
extern std::atomic<int64_t> allocations;

/// While it lives, `count` more allocations of this thread succeed, the next one fails, and later ones succeed.
class FailingAllocation {
  public:
    explicit FailingAllocation(int64_t count);
    ~FailingAllocation();
    static bool was_reached();
};

}  // namespace normjit::test
