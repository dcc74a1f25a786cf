// SPDX-License-Identifier: Apache-2.0
// Predicts which of several CUDA schedules is the fastest. The prediction is a sum of decision trees that were fitted
// to the times of all schedules that tuners measured: tools/lab/fit_costs.py.
#pragma once

#include "schedule/cuda_features.h"

#include "normjit/schedule.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace normjit::schedule {

/// The names of the numbers that the trees compare: first those of the problem, then those of the schedule, then those
/// of both.
std::span<const std::string_view> cuda_cost_names();
std::vector<double> cuda_cost_numbers(const CudaFeatures& problem, const CudaTarget& target, const Schedule& schedule);

/// Returns how much longer the schedule takes than the problem's fastest: the natural logarithm of the predicted ratio.
/// Use it to compare schedules of one problem; all schedules that are far from the fastest have about the same cost.
double cuda_cost(const CudaFeatures& problem, const CudaTarget& target, const Schedule& schedule);

/// Decision trees whose leaves are added up. Lines of the text that start with # are skipped. The first other line has
/// the names of the numbers. The next lines have, for each number, the limits that it is compared with, in increasing
/// order. Each further line is a tree in prefix order: "3:1" is a node, where number 3 is compared with its limit 1,
/// both counted from 0; its first subtree applies if the number is at most the limit, its second if not. A word without
/// a colon is a leaf, in units of 0.00001.
class CostTrees {
  public:
    /// Fails if the text contains no such trees, or has other names.
    static Expected<CostTrees> parse(std::string_view text, std::span<const std::string_view> names);

    double sum(std::span<const double> numbers) const;

  private:
    struct Node {
        int number;              ///< -1 for a leaf
        int value;               ///< the index of the limit, or a leaf's value
        uint32_t otherwise = 0;  ///< the root of the second subtree; the first one begins after this node
    };
    /// Reads a tree from the front of the line; false if there is none.
    bool read_tree(std::string_view& line);

    std::vector<std::vector<double>> limits_;  ///< by number
    std::vector<Node> nodes_;
    std::vector<size_t> roots_;
};

}  // namespace normjit::schedule
