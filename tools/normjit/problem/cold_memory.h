// SPDX-License-Identifier: Apache-2.0
// Memory for more data than the caches of this machine can hold.
#pragma once

#include "problem/problem.h"
#include "team.h"

#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>

namespace normjit::cli {

/// Returns the size of the second and third level caches of the processors that this process may use, counting each
/// cache once. If the system does not show them under `sys`, uses the values in the target.
int64_t cache_bytes(const Target& target, const std::string& sys = "/sys/devices/system/cpu");

/// One block of memory, which the problems of a process use one after another. Its pages are ordinary pages, usually of
/// 4 KiB. When the block is made, the threads of the team touch 2 MiB each in turn, which spreads the pages evenly in a
/// machine with several memories.
class ColdMemory {
  public:
    ColdMemory(int64_t turn_bytes, int64_t most_bytes) : turn_bytes_(turn_bytes), most_bytes_(most_bytes) {}
    /// Takes twice the size of the caches, at most cpu::spare_memory().
    static ColdMemory of_machine(const Target& target);

    /// Returns how many bytes must be used between two uses of the same data so that no cache holds it any more. Caches
    /// do not strictly replace the oldest data.
    int64_t turn_bytes() const { return turn_bytes_; }
    int64_t most_bytes() const { return most_bytes_; }
    /// True if the memory is large enough for turn_bytes().
    bool is_enough() const { return turn_bytes_ <= most_bytes_; }

    /// Returns memory at the start of a page, a different page each time. Its old content is lost.
    Expected<char*> take(int64_t bytes, bench::Team& team);

  private:
    int64_t turn_bytes_, most_bytes_;
    Buffer block_;
    int64_t taken_ = 0;  ///< how many times memory was taken
};

}  // namespace normjit::cli
