// SPDX-License-Identifier: Apache-2.0
// Prints values as expressions with infix operators: named values by their names, the others inside their users.
#pragma once

#include "ir/ir.h"

#include <string>

namespace normjit::ir {

class Formula {
  public:
    explicit Formula(const Function& function) : function_(function) {}

    /// Returns the expression by which users refer to a value: "xhat", "(x - mean) * rstd". Parentheses enclose
    /// operators that bind weaker than `outer`.
    std::string use(ValueId id, int outer = 0) const;
    /// Returns the same, but never by the value's own name.
    std::string body(ValueId id, int outer = 0) const;

  protected:
    ~Formula() = default;
    /// Returns the name or number by which users refer to the value; empty if it is written inside them.
    virtual std::string name_in_use(ValueId id) const = 0;
    virtual std::string function_name(Op op) const { return std::string(info(op).notation); }
    /// True for operators between their operands, false for functions before them.
    virtual bool is_infix(ValueId id) const { return info(function_[id].op).infix(); }

    const Function& function_;
};

}  // namespace normjit::ir
