// SPDX-License-Identifier: Apache-2.0
// Memory for more data than the caches of this machine hold.
#pragma once

#include "problem.h"
#include "team.h"

#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>

namespace normjit::cli {

/// Returns the bytes of the second and third level caches of the processors that this process may use, each counted
/// once. If the system under `sys` does not show them, the target's values count.
int64_t cache_bytes(const Target& target, const std::string& sys = "/sys/devices/system/cpu");

/// One block of memory for the problems of a process, one after the other. Its pages are
/// ordinary ones, usually of 4 KiB. When the block is made, each thread of the team in turn touches 2 MiB of it, which
/// spreads the pages evenly in a machine with several memories.
class ColdMemory {
  public:
    ColdMemory(int64_t turn_bytes, int64_t most_bytes) : turn_bytes_(turn_bytes), most_bytes_(most_bytes) {}
    /// Takes twice the size of the caches, at most cpu::spare_memory().
    static ColdMemory of_machine(const Target& target);

    /// Returns how many bytes must be used between two uses of the same data for no cache to have it any more;
    /// replacement is not strictly by age.
    int64_t turn_bytes() const { return turn_bytes_; }
    int64_t most_bytes() const { return most_bytes_; }
    /// True if the memory is large enough for turn_bytes().
    bool is_enough() const { return turn_bytes_ <= most_bytes_; }

    /// Returns memory at the start of a page, a different page each time. Its old content is lost.
    Expected<char*> take(int64_t bytes, bench::Team& team);

  private:
    int64_t turn_bytes_, most_bytes_;
    Buffer block_;
    int64_t taken_ = 0;  ///< times
};

}  // namespace normjit::cli
