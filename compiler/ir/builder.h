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

inline Expr row_mean(Expr a) { return a.builder->apply(Op::row_mean, a); }
inline Expr row_max(Expr a) { return a.builder->apply(Op::row_max, a); }
inline Expr col_sum(Expr a) { return a.builder->apply(Op::col_sum, a); }
inline Expr max_abs(Expr a) { return a.builder->apply(Op::max_abs, a); }
#define NORMJIT_FUNCTION(name) \
    inline Expr name(Expr a) { return a.builder->apply(Op::name, a); }
NORMJIT_FUNCTION(rsqrt)
NORMJIT_FUNCTION(sqrt)
NORMJIT_FUNCTION(abs)
NORMJIT_FUNCTION(exp)
NORMJIT_FUNCTION(exp2)
NORMJIT_FUNCTION(sigmoid)
NORMJIT_FUNCTION(silu)
NORMJIT_FUNCTION(tanh)
NORMJIT_FUNCTION(log)
NORMJIT_FUNCTION(log1p)
NORMJIT_FUNCTION(softplus)
NORMJIT_FUNCTION(gelu_tanh)
NORMJIT_FUNCTION(erf)
NORMJIT_FUNCTION(gelu)
NORMJIT_FUNCTION(round)
#undef NORMJIT_FUNCTION
inline Expr min(Expr a, Expr b) { return a.builder->apply(Op::min, a, b); }
inline Expr max(Expr a, Expr b) { return a.builder->apply(Op::max, a, b); }
inline Expr compare(Expr a, Expr b) { return a.builder->apply(Op::compare, a, b); }
/// Returns the value as a store in this type would leave it.
Expr round_to(DType type, Expr a);
/// Returns `a`, repeated for every element of `b`.
inline Expr like(Expr a, Expr b) { return a.builder->apply(Op::like, a, b); }
inline Expr div_or_zero(Expr a, Expr b) { return a.builder->apply(Op::div_or_zero, a, b); }

/// Returns the shape of the result of `op` for operands of these shapes; unary ops ignore `b`.
Shape result_shape(Op op, Shape a, Shape b);

}  // namespace normjit::ir
