// SPDX-License-Identifier: Apache-2.0
// Counts every operator new of this program, and can make it fail.
#pragma once

#include <atomic>
#include <cstdint>

namespace normjit::test {

/// How many allocations all threads have made so far.
extern std::atomic<int64_t> allocations;

/// For its lifetime, `count` more allocations of this thread succeed, and the next one fails. Later ones succeed, or
/// fail as well.
class FailingAllocation {
  public:
    enum class Later { succeed, fail };
    explicit FailingAllocation(int64_t count, Later later = Later::succeed);
    ~FailingAllocation();
    static bool was_reached();
};

}  // namespace normjit::test
