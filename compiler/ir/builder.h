// SPDX-License-Identifier: Apache-2.0
// Writes IR like a formula: Expr overloads the operators, and every result is appended to the Builder's function.
#pragma once

#include "ir/ir.h"

#include <map>
#include <string_view>
#include <utility>

namespace normjit::ir {

class Builder;

/// A value of the function under construction. Cheap to copy; valid as long as its Builder.
struct Expr {
    Builder* builder = nullptr;
    ValueId id = no_value;
};

class Builder {
  public:
    /// Values are appended to `function`, which declares the operands, the number of columns and the types.
    explicit Builder(Function function) : function_(std::move(function)) {}

    Expr input(Tensor tensor);
    Expr constant(double number);
    Expr apply(Op op, Expr a, Expr b = {});

    /// Gives a value its printed name and returns it. An input keeps its tensor's name; another value with that name
    /// loses it. If several other values get the same name, the first one keeps it.
    Expr name(std::string_view name, Expr value);
    void output(Tensor tensor, Expr value);
    /// Replaces a value in all its uses, present and future, by a value that is older than these uses and takes over
    /// the name.
    void replace(Expr value, Expr by);

    const Function& function() const { return function_; }
    /// Returns the function, without the values that no output needs.
    Function finish() &&;

  private:
    ValueId current(ValueId id) const;

    Function function_;
    std::map<ValueId, ValueId> replaced_;
};

#define NORMJIT_INFIX(symbol, op)                                                      \
    inline Expr operator symbol(Expr a, Expr b) { return a.builder->apply(op, a, b); } \
    inline Expr operator symbol(Expr a, double b) { return a symbol a.builder->constant(b); }
NORMJIT_INFIX(+, Op::add)
NORMJIT_INFIX(-, Op::sub)
NORMJIT_INFIX(*, Op::mul)
NORMJIT_INFIX(/, Op::div)
#undef NORMJIT_INFIX

/// A function for each op with operands: row_mean(a), max(a, b).
#define NORMJIT_OPERANDS_0(name)
#define NORMJIT_OPERANDS_1(name) \
    inline Expr name(Expr a) { return a.builder->apply(Op::name, a); }
#define NORMJIT_OPERANDS_2(name) \
    inline Expr name(Expr a, Expr b) { return a.builder->apply(Op::name, a, b); }
#define OP(name, operands, ...) NORMJIT_OPERANDS_##operands(name)
#include "ir/ops.def"
#undef NORMJIT_OPERANDS_0
#undef NORMJIT_OPERANDS_1
#undef NORMJIT_OPERANDS_2

/// Returns the value as a store in this type would leave it.
Expr round_to(DType type, Expr a);
/// Returns the shape of the result of `op` for operands of these shapes; unary ops ignore `b`.
Shape result_shape(Op op, Shape a, Shape b);

}  // namespace normjit::ir
