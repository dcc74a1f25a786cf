// SPDX-License-Identifier: Apache-2.0
// Decides whether one kernel is faster than another, from times that were measured in turn.
#pragma once

#include <vector>

namespace normjit::tuning {

/// How many times as fast as the base a kernel is, and where the true median lies with 95 % confidence. It is the
/// median over pairs from one round, because a temporary slow-down of the machine affects both of a pair.
struct Comparison {
    double gain = 1, low = 0, high = 1e9;
};

/// How often a winner is measured again, each time in new memory. It must win every time, and its smallest gain counts.
/// The fastest of many is partly luck, and the place of tensors in memory favours some schedules by several percent.
inline constexpr int confirmations = 2;

Comparison compare(const std::vector<double>& base_seconds, const std::vector<double>& seconds);

}  // namespace normjit::tuning
