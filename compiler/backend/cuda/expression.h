// SPDX-License-Identifier: Apache-2.0
// Prints IR values as CUDA C++ expressions. Named values appear by name; all others are written inside the expressions
// that use them.
#pragma once

#include "ir/formula.h"
#include "plan/plan.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace normjit::backend::cuda {

/// Returns the type's name in the device code.
std::string_view type_name(DType type);

/// Returns a literal of the compute type that reads back exactly: "9.99999975e-06f".
std::string literal(double number, DType compute);

/// True if the op is a function in templates/cuda/functions.cuh, which the generated file must then include; it always
/// includes types.cuh.
bool is_in_math(ir::Op op);

class Expressions final : public ir::Formula {
  public:
    explicit Expressions(const plan::Plan& plan);

    /// Returns a value's name; empty if the value is written inside its user.
    const std::string& name(ir::ValueId id) const { return names_[id]; }
    /// Returns the identifier for a name of the formula. Users choose these names, and may choose a keyword of C++ or a
    /// name that the device code uses.
    std::string identifier(std::string_view name) const { return fmt::format("{}{}", name, suffix_); }
    /// True if the value is a member of `struct Row`.
    bool in_row(ir::ValueId id) const { return in_row_[id]; }

  private:
    std::string name_in_use(ir::ValueId id) const override;
    std::string function_name(ir::Op op) const override;
    bool is_infix(ir::ValueId id) const override;

    std::string_view suffix_;
    ir::PerValue<std::string> names_;
    ir::PerValue<bool> in_row_;
    ir::PerValue<bool> has_same_bits_;  ///< the bits must be the same wherever the value is computed
};

}  // namespace normjit::backend::cuda
