// SPDX-License-Identifier: Apache-2.0
// The values of a forward pass as products of base values.
#pragma once

#include "gradient/terms.h"

#include <set>
#include <vector>

namespace normjit::gradient {

/// Writes each value as a product of base values. These are the values that are neither products nor quotients, and
/// products with too many factors. In x * rstd, where rstd is a reciprocal square root, the product is the base value,
/// and x is that product divided by rstd: x * rstd stays in range where x * rstd * rstd * rstd does not.
class Products {
  public:
    /// Values in `saved` are base values.
    Products(const ir::Function& function, const std::set<ir::ValueId>& saved);

    /// Returns the value as a product. A value newer than the forward pass is a base value.
    Term operator[](ir::ValueId id) const { return id < size() ? products_[static_cast<size_t>(id)] : of_value(id); }
    ir::ValueId size() const { return static_cast<ir::ValueId>(products_.size()); }

    /// True if each row of the base value has the mean 0: a - row_mean(a), and its products with a reciprocal square
    /// root.
    bool has_zero_mean(ir::ValueId base) const { return zero_means_.contains(base); }

  private:
    std::vector<Term> products_;
    std::set<ir::ValueId> zero_means_;
};

}  // namespace normjit::gradient
