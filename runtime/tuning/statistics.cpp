// SPDX-License-Identifier: Apache-2.0
#include "tuning/statistics.h"

#include <algorithm>
#include <cmath>

namespace normjit::tuning {

Comparison compare(const std::vector<double>& base_seconds, const std::vector<double>& seconds) {
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(base_seconds.size(), seconds.size()); ++i)
        ratios.push_back(base_seconds[i] / seconds[i]);
    if (ratios.empty()) return {};
    std::sort(ratios.begin(), ratios.end());
    const auto n = static_cast<double>(ratios.size());
    // The median lies between the k-th values from either end unless k or fewer of the n values are on one side of it.
    // The number of values on one side has a binomial distribution with a standard deviation of sqrt(n) / 2.
    const auto k = static_cast<size_t>(std::max(0.0, std::floor(n / 2 - 0.98 * std::sqrt(n))));
    const double median = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
    return {median, ratios[k], ratios[ratios.size() - 1 - k]};
}

}  // namespace normjit::tuning
