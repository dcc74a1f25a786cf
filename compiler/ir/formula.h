// SPDX-License-Identifier: Apache-2.0
// Values as expressions with infix operators: those that have a name by it, the rest inside their users.
#pragma once

#include "ir/ir.h"

#include <string>
#include <string_view>

namespace normjit::ir {

class Formula {
  public:
    explicit Formula(const Function& function) : function_(function) {}

    /// Returns what stands for a value in its users: "xhat", "(x - mean) * rstd". Parentheses enclose what binds weaker
    /// than `outer`.
    std::string use(ValueId id, int outer = 0) const;
    /// Returns the same, but never by the value's own name.
    std::string body(ValueId id, int outer = 0) const;

  protected:
    ~Formula() = default;
    /// Returns the name or number by which users have the value; empty for one that is written inside them.
    virtual std::string name_in_use(ValueId id) const = 0;
    virtual std::string_view function_name(Op op) const { return info(op).notation; }

    const Function& function_;
};

}  // namespace normjit::ir
