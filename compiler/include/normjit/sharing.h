// SPDX-License-Identifier: Apache-2.0
// Which problems several threads of a CPU do faster than one: for the heuristic, and for every launch.
#pragma once

#include <cstdint>

namespace normjit {

/// Handing out the tasks of a launch and waiting for the last costs 10 to 15 us, what one thread computes 70,000
/// elements in; gamma and the column sums count as rows. Xeon, us with 16 threads / 1, 2026-11-21: 64x1024 f32 18.1 /
/// 13.2, bf16 14.8 / 14.1; 512x256 f32 14.1 / 17.1, bf16 10.8 / 25.1; 1x65536 f32 15.8 / 22.7.
constexpr bool pays_to_share(int64_t rows, int64_t cols, int threads) {
    constexpr int64_t handed_out = 72 << 10, column_rows = 2;
    if (threads < 2) return false;
    const int64_t least = handed_out * threads / (threads - 1);
    return rows + column_rows > (least - 1) / cols;
}

}  // namespace normjit
