// SPDX-License-Identifier: Apache-2.0
#include "gradient/derivatives.h"

#include "ir/arithmetic.h"

namespace normjit::gradient {

namespace {

using ir::Expr;
using ir::Op;

constexpr double root_pi = 1.7724538509055160;

/// Returns s + x * w * s * (1 - s): the derivative of x * s, with s = sigmoid(v) and v' = w.
Sum of_gate(const Term& x, const Term& s, const Term& w) {
    Sum sum(s);
    sum.add(x * w * s);
    sum.add(x * w * s * s * -1);
    return sum;
}

/// gelu_tanh(x) = x * sigmoid(v), v = x * (linear + cubic * x^2). Beyond `far` the sigmoid is exactly 0 or 1, so x * v'
/// may use an x that is clamped to `far`. Without the clamp v' would overflow, and 0 times infinity is NaN.
Sum of_gelu_tanh(Expr x) {
    constexpr double far = 22;
    const Expr s = sigmoid(x * (x * x * ir::gelu_cubic + ir::gelu_linear));
    const Expr near = min(max(x, x.builder->constant(-far)), x.builder->constant(far));
    const Expr slope = near * near * (3 * ir::gelu_cubic) + ir::gelu_linear;
    return of_gate(of_value(near.id), of_value(s.id), of_value(slope.id));
}

/// The normal distribution, and x times its density.
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
        case Op::rsqrt:
            return power(y, 3) * -0.5;
        case Op::sqrt:
            return power(y, -1) * 0.5;
        case Op::abs:
            return of_value(compare(a, builder.constant(0)).id);
        case Op::exp:
            return y;
        case Op::log:
            return power(products[a.id], -1);
        case Op::sigmoid: {
            Sum sum(y);
            sum.add(y * y * -1);
            return sum;
        }
        case Op::silu:
            return of_gate(products[a.id], of_value(sigmoid(a).id), Term());
        case Op::tanh: {
            Sum sum{Term()};
            sum.add(y * y * -1);
            return sum;
        }
        case Op::softplus:
            return of_value(sigmoid(a).id);
        case Op::gelu_tanh:
            return of_gelu_tanh(a);
        case Op::erf:
            return of_value((exp(a * a * -1) * (2 / root_pi)).id);
        case Op::gelu:
            return of_gelu(products[a.id], a);
        case Op::compare:
            return Sum();
        default:
            return std::nullopt;
    }
}

}  // namespace normjit::gradient
