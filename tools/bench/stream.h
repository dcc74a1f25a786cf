// SPDX-License-Identifier: Apache-2.0
// The memory ceiling: how long this machine takes to only read the matrices of a problem and write its result once. It
// uses the problem's own buffers, so that pages and caches are in the same state as for the kernel.
#pragma once

#include "team.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace normjit::bench {

/// Memory to pass over: whole matrices of one shape, whose sizes therefore differ only by the element types.
struct Traffic {
    struct Read {
        const void* data = nullptr;
        int64_t bytes = 0;
    };
    struct Write {
        void* data = nullptr;
        int64_t bytes = 0;
    };
    std::vector<Read> reads;    ///< 1 to 8
    std::vector<Write> writes;  ///< at most 8

    int64_t bytes() const;
};

/// One way to pass over memory. Which way is fastest depends on the machine and on the size.
struct StreamMethod {
    std::string_view name;
    bool past_caches = false;  ///< non-temporal stores
    bool prefetch = false;     ///< prefetches in software, ahead of the reads
    bool one_thread = false;   ///< uses only the calling thread, which for few bytes is faster than waking others
};

/// Returns the methods that this machine can run.
const std::vector<StreamMethod>& stream_methods();

/// Runs one pass on the threads of the team. Overwrites traffic.writes.
void stream(Team& team, const Traffic& traffic, const StreamMethod& method);

}  // namespace normjit::bench
