// SPDX-License-Identifier: Apache-2.0
// Which problems several threads of a CPU do faster than one: for the heuristic, and for every launch.
#pragma once

#include <cstdint>

namespace normjit {

/// Sharing a launch costs 3 to 5 us, what one thread computes 40,000 elements in: a phase costs 1 us to hand out, and
/// partials come from other cores' caches. gamma and the column sums count as rows. Xeon, us with 16 threads / 1,
/// 2026-11-21: 64x1024 f32 8.2 / 12.6, bf16 7.9 / 14.4; 512x256 f32 7.7 / 24.8, bf16 8.4 / 25.4; 1x65536 f32 6.6 / 33,
/// 4x8192 4.5 / 11, 1x16384 5.2 / 7.7; below, 128x256 4.8 / 5.9, 32x1024 8.0 / 6.9, 1x8192 6.0 / 3.9.
constexpr bool pays_to_share(int64_t rows, int64_t cols, int threads) {
    constexpr int64_t handed_out = 40 << 10, column_rows = 2;
    if (threads < 2) return false;
    const int64_t least = handed_out * threads / (threads - 1);
    return rows + column_rows > (least - 1) / cols;
}

}  // namespace normjit
