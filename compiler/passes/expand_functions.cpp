// SPDX-License-Identifier: Apache-2.0
// Each function as arithmetic. silu(z), in the names of this file:
//
//     least    = max(z, -104)
//     k        = (least * log2_e + rounding) - rounding       the integer nearest to z / ln 2
//     rest     = k * ln2_high - min(least, 30) + k * ln2_low  exp(-z) = exp(rest) * 2^-k
//     power    = scale(1, k)
//     silu(z)  = least * (power / (power + 1 + (exp(rest) - 1)))
//
// Sums are written so that a back end without FMAs stays accurate: ln2_high has few bits, and k * ln2_high is exact.
// Limits keep 2^k in range where the result no longer changes; min and max let NaN through.
// Polynomials: minimax, by Remez' algorithm, with coefficients in the compute type.
// Maths: Muller, "Elementary Functions" (2016), chapters 3 and 11.
#include "ir/arithmetic.h"
#include "passes/passes.h"

#include <array>
#include <span>

namespace normjit::passes {

namespace {

using ir::Op;
using ir::ValueId;

/// What depends on the compute type.
struct Numbers {
    double log2_e, ln2_high, ln2_low;
    double rounding;                ///< added and subtracted, it rounds to an integer
    double exp_least;               ///< exp of less is 0
    double exp_most;                ///< exp of more is infinite
    double sigmoid_most;            ///< sigmoid of more is 1
    double tanh_most;               ///< tanh of more is 1
    std::span<const double> exp;    ///< (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2
    std::span<const double> atanh;  ///< (2 * atanh(s) - 2 * s) / s^3 in s^2, for s <= 1/3
};

constexpr std::array exp_f32 = {
    0.5, 0.1666666716337204, 0.04166649281978607, 0.008333179168403149, 0.001393109792843461, 0.00019928091205656528};
constexpr std::array atanh_f32 = {0.6666667461395264, 0.39998945593833923, 0.2861534655094147, 0.21442000567913055,
                                  0.2425365298986435};
constexpr std::array exp_f64 = {0.5,
                                0.16666666666666677,
                                0.04166666666662075,
                                0.008333333333319383,
                                0.001388888892022051,
                                0.00019841269893443005,
                                2.480151668797379e-05,
                                2.755723589881707e-06,
                                2.762209910994325e-07,
                                2.5112128321767565e-08};
constexpr std::array atanh_f64 = {0.6666666666666651,  0.4000000000009781, 0.28571428554244493, 0.222222236211974,
                                  0.18181754917872525, 0.1538634728608106, 0.133035357308725,   0.12087328354427058,
                                  0.08416476354217703, 0.16885916223408343};

constexpr Numbers numbers_f32 = {.log2_e = 1.4426950216293335,
                                 .ln2_high = 0.693145751953125,
                                 .ln2_low = 1.428606765330187e-06,
                                 .rounding = 0x1.8p23,
                                 .exp_least = -104,
                                 .exp_most = 89,
                                 .sigmoid_most = 30,
                                 .tanh_most = 10,
                                 .exp = exp_f32,
                                 .atanh = atanh_f32};
constexpr Numbers numbers_f64 = {.log2_e = 1.4426950408889634,
                                 .ln2_high = 0.6931471805598903,
                                 .ln2_low = 5.497923018708371e-14,
                                 .rounding = 0x1.8p52,
                                 .exp_least = -746,
                                 .exp_most = 710,
                                 .sigmoid_most = 60,
                                 .tanh_most = 20,
                                 .exp = exp_f64,
                                 .atanh = atanh_f64};

/// gelu_tanh of less is 0.
constexpr double gelu_least = -22;

/// Appends arithmetic to a function, written as formulas.
class Expansion {
  public:
    explicit Expansion(ir::Function& function)
        : function_(function), numbers_(function.compute == DType::f64 ? numbers_f64 : numbers_f32) {}

    ValueId run(Op op, ValueId operand) {
        const E a{this, operand};
        switch (op) {
            case Op::exp:
                return exp(apply(Op::min, at_least(a, numbers_.exp_least), number(numbers_.exp_most))).id;
            case Op::sigmoid:
                return sigmoid(a).id;
            case Op::silu:
                return (at_least(a, numbers_.exp_least) * sigmoid(a)).id;
            case Op::tanh:
                return tanh(a).id;
            case Op::log:
                return log(a).id;
            case Op::softplus:
                return (log1p(exp(at_least(number(0) - apply(Op::abs, a), numbers_.exp_least))) + at_least(a, 0)).id;
            case Op::gelu_tanh:
                return (at_least(a, gelu_least) * sigmoid(a * (a * a * ir::gelu_cubic + ir::gelu_linear))).id;
            default:
                return ir::no_value;
        }
    }

  private:
    struct E {
        Expansion* expansion;
        ValueId id;
        E operator+(E b) const { return expansion->apply(Op::add, *this, b); }
        E operator-(E b) const { return expansion->apply(Op::sub, *this, b); }
        E operator*(E b) const { return expansion->apply(Op::mul, *this, b); }
        E operator/(E b) const { return expansion->apply(Op::div, *this, b); }
        E operator+(double b) const { return *this + expansion->number(b); }
        E operator-(double b) const { return *this - expansion->number(b); }
        E operator*(double b) const { return *this * expansion->number(b); }
    };

    E number(double value) { return {this, append(function_, {.op = Op::constant, .constant = value})}; }
    E apply(Op op, E a, E b) {
        const ir::Shape shape = ir::join(function_[a.id].shape, function_[b.id].shape);
        return {this, append(function_, {.op = op, .shape = shape, .operands = {a.id, b.id}})};
    }
    E apply(Op op, E a) {
        const ir::Shape shape = function_[a.id].shape;
        return {this, append(function_, {.op = op, .shape = shape, .operands = {a.id, ir::no_value}})};
    }
    E at_least(E a, double least) { return apply(Op::max, a, number(least)); }

    E polynomial(E x, std::span<const double> coefficients) {
        E sum = number(coefficients.back());
        for (size_t i = coefficients.size() - 1; i-- > 0;) sum = sum * x + coefficients[i];
        return sum;
    }

    /// Returns a / ln 2 as the nearest integer.
    E halvings(E a) { return (a * numbers_.log2_e + numbers_.rounding) - numbers_.rounding; }
    /// Returns exp(r) - 1 for |r| <= ln(2) / 2.
    E expm1(E r) { return r * r * polynomial(r, numbers_.exp) + r; }

    /// Returns exp of a number in its range.
    E exp(E a) {
        const E k = halvings(a);
        const E rest = a - k * numbers_.ln2_high - k * numbers_.ln2_low;
        return apply(Op::scale, expm1(rest) + 1, k);
    }

    /// For sums with 1 that are exact, 1 is added to the power of two first.
    E sigmoid(E a) {
        const E x = apply(Op::min, at_least(a, numbers_.exp_least), number(numbers_.sigmoid_most));
        const E k = halvings(x);
        const E rest = (k * numbers_.ln2_high - x) + k * numbers_.ln2_low;
        const E power = apply(Op::scale, number(1), k);
        return power / (power + 1 + expm1(rest));
    }

    /// With m = exp(2 * |a|) - 1, which loses no digit near 0, the tangent is m / (m + 2).
    E tanh(E a) {
        const E half = apply(Op::min, apply(Op::abs, a), number(numbers_.tanh_most));
        const E x = half + half;
        const E k = halvings(x);
        const E power = apply(Op::scale, number(1), k);
        const E m = expm1(x - k * numbers_.ln2_high - k * numbers_.ln2_low) * power + (power - 1);
        return apply(Op::copysign, m / (m + 2), a);
    }

    E log(E a) {
        const E k = apply(Op::exponent, a);
        return k * numbers_.ln2_high + (k * numbers_.ln2_low + log1p(apply(Op::mantissa, a) - 1));
    }

    /// Returns log(1 + f) = 2 * atanh(f / (2 + f)) for f from -1/4 to 1, here f - (f^2 / 2 - ...), in which f has no error.
    E log1p(E f) {
        const E s = f / (f + 2);
        const E square = s * s, half = f * f * 0.5;
        return f - (half - s * (square * polynomial(square, numbers_.atanh) + half));
    }

    ir::Function& function_;
    const Numbers& numbers_;
};

}  // namespace

ir::Function expand_functions(const ir::Function& function) {
    return rewrite(function, [](ir::Function& copy, ir::ValueId, ir::Value value) {
        const ValueId expanded = Expansion(copy).run(value.op, value.operands[0]);
        if (expanded == ir::no_value) return append(copy, std::move(value));
        copy[expanded].name = value.name;
        return expanded;
    });
}

}  // namespace normjit::passes
