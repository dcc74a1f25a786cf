// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace normjit {

/// Return the quotient, or the value as a multiple of `unit`, rounded up. Arguments must not be negative.
constexpr int64_t divide_up(int64_t value, int64_t unit) { return value / unit + (value % unit != 0); }
constexpr int64_t round_up(int64_t value, int64_t unit) { return divide_up(value, unit) * unit; }

}  // namespace normjit
