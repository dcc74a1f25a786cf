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

/// Bytes of the second and third level caches of the processors that this process may run on, each counted once; what
/// the target says where the system under `sys` does not show them.
int64_t cache_bytes(const Target& target, const std::string& sys = "/sys/devices/system/cpu");

/// One block for the problems of a process, one after the other. Pages are those that the system gives to any buffer,
/// usually of 4 KiB, and are touched when the block is made, 2 MiB by each thread of the team in turn: in a machine
/// with several memories they are spread evenly.
class ColdMemory {
  public:
    ColdMemory(int64_t turn_bytes, int64_t most_bytes) : turn_bytes_(turn_bytes), most_bytes_(most_bytes) {}
    /// Twice what the caches hold, cpu::spare_memory() at most.
    static ColdMemory of_machine(const Target& target);

    /// So many bytes from one use of data to its next, and no cache has it any more: replacement is not strictly by
    /// age.
    int64_t turn_bytes() const { return turn_bytes_; }
    int64_t most_bytes() const { return most_bytes_; }
    /// Whether there is memory for a turn.
    bool is_enough() const { return turn_bytes_ <= most_bytes_; }

    /// Starts on a page, another one than the last time. What was there before is lost.
    Expected<char*> take(int64_t bytes, bench::Team& team);

  private:
    int64_t turn_bytes_, most_bytes_;
    Buffer block_;
    int64_t taken_ = 0;  ///< times
};

}  // namespace normjit::cli
