// SPDX-License-Identifier: Apache-2.0
// Is one kernel faster than another? From times that were measured in turn.
#pragma once

#include <vector>

namespace normjit::tuning {

/// How many times as fast as the base, and where the true median lies with 95 % certainty. The median over pairs of
/// one round: what slows the machine down for a while slows both.
struct Comparison {
    double gain = 1, low = 0, high = 1e9;
};

/// A winner is measured again so many times, on memory of its own each time, has to win every time, and its smallest
/// gain counts: who wins a race has been lucky once more, and where the pages of large tensors lie is worth several
/// percent to one schedule and not to another.
inline constexpr int confirmations = 2;

Comparison compare(const std::vector<double>& base_seconds, const std::vector<double>& seconds);

}  // namespace normjit::tuning
