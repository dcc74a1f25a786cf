// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace normjit {

/// The rows of a launch: `slices` slices of `rows` rows, S times M.
struct Batch {
    Batch(int64_t of_slice, int64_t count = 1) : rows(of_slice), slices(count) {}
    int64_t rows;
    int64_t slices;
    /// Returns the product, or INT64_MAX if it is larger. Neither factor may be negative.
    int64_t all_rows() const {
        int64_t all = 0;
        return __builtin_mul_overflow(rows, slices, &all) ? INT64_MAX : all;
    }
    bool operator==(const Batch&) const = default;
};

}  // namespace normjit
