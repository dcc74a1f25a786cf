// SPDX-License-Identifier: Apache-2.0
// IR values as CUDA C++ expressions: named values by their names, the rest inside its user.
#pragma once

#include "plan/plan.h"

#include <string>

namespace normjit::backend::cuda {

/// A number of the compute type that reads back exactly: "9.99999975e-06f".
std::string literal(double number, DType compute);

class Expressions {
  public:
    explicit Expressions(const plan::Plan& plan);

    /// Empty for a value that is written inside its user.
    const std::string& name(ir::ValueId id) const { return names_[id]; }
    /// Whether the value lives in `struct Row`.
    bool in_row(ir::ValueId id) const { return in_row_[id]; }
    /// "row.c1", "xhat", "(x - row.mean) * row.rstd".
    std::string use(ir::ValueId id) const { return use(id, 0); }
    /// The same, but never by the value's own name.
    std::string body(ir::ValueId id) const { return body(id, 0); }

  private:
    std::string use(ir::ValueId id, int outer) const;
    std::string body(ir::ValueId id, int outer) const;

    const ir::Function& function_;
    ir::PerValue<std::string> names_;
    ir::PerValue<bool> in_row_;
};

}  // namespace normjit::backend::cuda
