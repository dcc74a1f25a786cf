// SPDX-License-Identifier: Apache-2.0
// Which launches on a CPU write matrices past the caches: for every launch, and for code that never needs to.
#pragma once

#include "normjit/operand.h"

#include <algorithm>
#include <cstdint>

namespace normjit {

/// Whether the matrices are more than the caches hold of the cores that the threads take. `nontemporal_bytes` is what
/// those of all cores hold, or negative for never.
inline bool goes_past_caches(const OperandList& operands, int64_t cols, int64_t rows, int64_t nontemporal_bytes,
                             int cores, int threads) {
    if (nontemporal_bytes < 0 || operands.matrix_outputs().empty()) return false;
    int64_t row_bytes = 0;
    for (const Operand& operand : operands) row_bytes += operand.is_matrix() ? cols * operand.bytes() : 0;
    const int64_t all = std::max(cores, 1), taken = std::min<int64_t>(threads, all);
    return rows * row_bytes >= nontemporal_bytes / all * taken;
}

}  // namespace normjit
