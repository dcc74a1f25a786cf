// SPDX-License-Identifier: Apache-2.0
// Decides which problems several CPU threads compute faster than one: for the heuristic, and at every launch.
#pragma once

#include <cstdint>

namespace normjit {

/// True if sharing pays: it costs several microseconds, in which one thread computes 40,000 elements. gamma and the
/// column sums count as rows (NOTES N-615).
constexpr bool pays_to_share(int64_t rows, int64_t cols, int threads) {
    constexpr int64_t handed_out = 40 << 10, column_rows = 2;
    if (threads < 2) return false;
    const int64_t least = handed_out * threads / (threads - 1);
    return rows + column_rows > (least - 1) / cols;
}

}  // namespace normjit
