// SPDX-License-Identifier: Apache-2.0
#include "gradient/derivatives.h"

#include "ir/arithmetic.h"

#include <numbers>

namespace normjit::gradient {

namespace {

using ir::Expr;
using ir::Op;

constexpr double root_pi = 1.7724538509055160;

/// Returns 1 - a as one factor. As two terms, its parts would be rounded separately in sums with other terms.
Term one_minus(Expr a) { return of_value((a.builder->constant(1) - a).id); }

/// Returns s + x * w * s * (1 - s): the derivative of x * s, with s = sigmoid(v) and v' = w.
Sum of_gate(const Term& x, Expr s, const Term& w) {
    Sum sum(of_value(s.id));
    sum.add(x * w * of_value(s.id) * one_minus(s));
    return sum;
}

/// gelu_tanh(x) = x * sigmoid(v), v = x * (linear + cubic * x^2). Beyond `far` the sigmoid is constant, so x * v'
/// may use an x that is clamped to `far`. Without the clamp v' would overflow, and 0 times infinity is NaN.
Sum of_gelu_tanh(Expr x) {
    constexpr double far = ir::gelu_tanh_far;
    const Expr s = sigmoid(x * (x * x * ir::gelu_cubic + ir::gelu_linear));
    const Expr near = min(max(x, x.builder->constant(-far)), x.builder->constant(far));
    const Expr slope = near * near * (3 * ir::gelu_cubic) + ir::gelu_linear;
    return of_gate(of_value(near.id), s, of_value(slope.id));
}

/// Uses the normal distribution, and x times its density.
Sum of_gelu(const Term& product, Expr x) {
    Sum sum(of_value((erf(x * ir::root_half) * 0.5 + 0.5).id));
    const Expr density = exp(x * x * -0.5) * (ir::root_half / root_pi);
    sum.add(product * of_value(density.id));
    return sum;
}

}  // namespace

std::optional<Sum> derivative(ir::Builder& builder, const Products& products, ir::ValueId id) {
    const ir::Value value = builder.function()[id];
    const Expr a{&builder, value.operands[0]};
    const Term y = products[id];
    switch (value.op) {
        case Op::rsqrt: return power(y, 3) * -0.5;
        case Op::sqrt: return power(y, -1) * 0.5;
        case Op::abs: return of_value(compare(a, builder.constant(0)).id);
        case Op::exp: return y;
        case Op::exp2: return Sum(y) * std::numbers::ln2;
        case Op::log: return power(products[a.id], -1);
        case Op::log1p: return of_value((builder.constant(1) / (a + 1)).id);
        case Op::sigmoid: return y * one_minus({&builder, id});
        case Op::silu: return of_gate(products[a.id], sigmoid(a), Term());
        case Op::tanh: return one_minus(Expr{&builder, id} * Expr{&builder, id});
        case Op::softplus: return of_value(sigmoid(a).id);
        case Op::gelu_tanh: return of_gelu_tanh(a);
        case Op::erf: return of_value((exp(a * a * -1) * (2 / root_pi)).id);
        case Op::gelu: return of_gelu(products[a.id], a);
        case Op::compare:
        case Op::round: return Sum();
        default: return std::nullopt;
    }
}

}  // namespace normjit::gradient
