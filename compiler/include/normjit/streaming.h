// SPDX-License-Identifier: Apache-2.0
// Which launches on a CPU write dx past the caches: for every launch, and for code that never needs to.
#pragma once

#include "normjit/spec.h"

#include <algorithm>
#include <cstdint>

namespace normjit {

/// Whether x, dy and dx are more than the caches hold of the cores that the threads take. `stream_bytes` is what those
/// of all cores hold, or negative for never.
inline bool goes_past_caches(const Spec& spec, int64_t rows, int64_t stream_bytes, int cores, int threads) {
    if (stream_bytes < 0 || !spec.has(Tensor::dx)) return false;
    int64_t row_bytes = 0;
    for (const Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx})
        row_bytes += spec.cols * static_cast<int64_t>(size_of(*spec.dtypes[tensor]));
    const int64_t all = std::max(cores, 1), taken = std::min<int64_t>(threads, all);
    return rows * row_bytes >= stream_bytes / all * taken;
}

}  // namespace normjit
