// SPDX-License-Identifier: Apache-2.0
// Predicts which of several CUDA schedules is the fastest. The prediction is a sum of decision trees, fitted to the times
// of all schedules that tuners measured: tools/lab/fit_costs.py.
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

/// The numbers that the trees compare, by name: first those of the problem, then those of the schedule, then those of
/// both.
std::span<const std::string_view> cuda_cost_names();
std::vector<double> cuda_cost_numbers(const CudaFeatures& problem, const CudaTarget& target, const Schedule& schedule);

/// Returns how much longer the schedule takes than the problem's fastest: the natural logarithm of the predicted ratio.
/// It compares schedules of one problem; schedules far from the fastest all have about the same.
double cuda_cost(const CudaFeatures& problem, const CudaTarget& target, const Schedule& schedule);

/// The trees, embedded at build time: compiler/schedule/costs/cuda.txt.
struct ShippedCosts {
    std::string_view name, text;
};
std::span<const ShippedCosts> shipped_costs();

/// Decision trees whose leaves are added. In the text, lines that start with # are skipped. The first other line has the
/// names of the numbers; the next ones have, for each number, the limits that it is compared with, in increasing order.
/// Each line after them is a tree in prefix order: "3:1" is a node, whose first subtree holds if number 3 is at most its
/// limit 1, counted from 0, and whose second one holds otherwise; a word without a colon is a leaf, in units of 0.00001.
class CostTrees {
  public:
    /// Fails for a text that is none, or that has other names.
    static Expected<CostTrees> parse(std::string_view text, std::span<const std::string_view> names);

    double sum(std::span<const double> numbers) const;

  private:
    struct Node {
        int number;              ///< -1 in a leaf
        int value;               ///< the limit's number, or a leaf's value
        uint32_t otherwise = 0;  ///< the node of the second subtree; the first one begins after this node
    };
    /// Takes a tree from the line; false if there is none.
    bool read_tree(std::string_view& line);

    std::vector<std::vector<double>> limits_;  ///< of each number
    std::vector<Node> nodes_;
    std::vector<size_t> roots_;
};

}  // namespace normjit::schedule
