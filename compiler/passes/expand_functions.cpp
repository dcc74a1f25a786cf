// SPDX-License-Identifier: Apache-2.0
// Expands each function into arithmetic. sigmoid(z), in the names of this file:
//
//     x          = min(max(z, -104), 30)
//     k          = (x * log2_e + rounding) - rounding   the integer nearest to z / ln 2
//     rest       = k * ln2_high - x + k * ln2_low       exp(-z) = exp(rest) * 2^-k
//     power      = ldexp(1, k)
//     sigmoid(z) = power / (power + 1 + (exp(rest) - 1))      where the rounding error of power + 1 is added
//     silu(z)    = z * power / (the same)
//
// Sums are written so that a back end without FMAs stays accurate: ln2_high has few bits, and k * ln2_high is exact.
// Limits keep 2^k in range where the result no longer changes; min and max let NaN through.
// Polynomials: minimax, by Remez' algorithm, with coefficients in the compute type.
// Maths: Muller, "Elementary Functions" (2016), chapters 3 and 11.
#include "ir/arithmetic.h"
#include "passes/passes.h"

#include <array>
#include <numbers>
#include <span>

namespace normjit::passes {

namespace {

using ir::Op;
using ir::ValueId;

/// Constants that depend on the compute type.
struct Numbers {
    double log2_e, ln2_high, ln2_low;
    double all_whole;               ///< numbers from this on are whole
    double rounding;                ///< adding and subtracting it rounds to an integer
    double exp_least;               ///< exp of anything less is 0
    double exp_most;                ///< exp of anything more is infinite
    double exp2_least;              ///< 2 to the power of this or less is 0
    double exp2_most;               ///< 2 to the power of this or more is infinite
    double sigmoid_most;            ///< sigmoid of anything more is 1
    double tanh_most;               ///< tanh of anything more is 1
    double erf_most;                ///< erf of anything more is 1
    double log1p_small;             ///< beyond it, 1 + a rounded is close enough to 1 + a
    double log1p_least;             ///< less than the smallest 1 + a that is not 0
    double gelu_most;               ///< gelu of anything less than -gelu_most is 0
    double middle;                  ///< of the range of tail
    double tail_low;                ///< what rounding removes from the first coefficient of tail
    std::span<const double> exp;    ///< (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2
    std::span<const double> atanh;  ///< (2 * atanh(s) - 2 * s) / s^3 as a polynomial in s^2, for s <= 1/3
    std::span<const double> erf;    ///< (erf(x) - x) / x as a polynomial in x^2, for x <= 1
    std::span<const double> tail;   ///< tail(t) * (t + middle) as a polynomial in (t - middle) / (t + middle)
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

constexpr std::array erf_f32 = {0.12837910652160645,   -0.3761262595653534,   0.11283600330352783,
                                -0.026854440569877625, 0.0051895263604819775, -0.000802075257524848,
                                7.888796244515106e-05};
constexpr std::array tail_f32 = {0.7066566348075867,    -0.43369200825691223,  0.13198696076869965,
                                 0.00923579465597868,   -0.016385985538363457, -0.0016003777272999287,
                                 0.0025232837069779634, 0.0006834046798758209, -0.00031098490580916405,
                                 -0.0001568898733239621};
constexpr std::array erf_f64 = {0.12837916709551256,     -0.3761263890318375,     0.11283791670954879,
                                -0.026866170645076792,   0.0052239776248180145,   -0.000854832698083379,
                                0.0001205533111164271,   -1.4925595266831182e-05, 1.6461000484121368e-06,
                                -1.6350312701054695e-07, 1.4659775274047436e-08,  -1.1372848856791674e-09,
                                5.957176147748911e-11};
constexpr std::array tail_f64 = {
    0.7552851304157515,     -0.6078966419718921,     0.3871374007422147,      -0.18652185795965942,
    0.06039657489092838,    -0.007540188966659294,   -0.00347969236720852,    0.0016308184566302122,
    0.00013334431021535788, -0.00023109492775724412, -1.9082430396332306e-06, 3.51446520755692e-05,
    7.165976930568277e-07,  -5.920078054703549e-06,  -6.294985912958007e-07,  1.02139357367864e-06,
    2.714342262065266e-07,  -1.548194176687571e-07,  -8.497331815608801e-08,  1.3242017277604494e-08,
    1.9324197202483575e-08, 1.8806081961039198e-09,  -2.4285968455796708e-09, -7.021684582417809e-10,
    -5.17586203384346e-12};

constexpr Numbers numbers_f32 = {.log2_e = 1.4426950216293335,
                                 .ln2_high = 0.693145751953125,
                                 .ln2_low = 1.428606765330187e-06,
                                 .all_whole = 0x1p23,
                                 .rounding = 0x1.8p23,
                                 .exp_least = -104,
                                 .exp_most = 89,
                                 .exp2_least = -150,
                                 .exp2_most = 128,
                                 .sigmoid_most = 30,
                                 .tanh_most = 10,
                                 .erf_most = 4,
                                 .log1p_small = 1 << 24,
                                 .log1p_least = 0x1p-30,
                                 .gelu_most = 14.42,
                                 .middle = 2.5,
                                 .tail_low = 2.5269525139037796e-08,
                                 .exp = exp_f32,
                                 .atanh = atanh_f32,
                                 .erf = erf_f32,
                                 .tail = tail_f32};
constexpr Numbers numbers_f64 = {.log2_e = 1.4426950408889634,
                                 .ln2_high = 0.6931471805598903,
                                 .ln2_low = 5.497923018708371e-14,
                                 .all_whole = 0x1p52,
                                 .rounding = 0x1.8p52,
                                 .exp_least = -746,
                                 .exp_most = 710,
                                 .exp2_least = -1075,
                                 .exp2_most = 1024,
                                 .sigmoid_most = 60,
                                 .tanh_most = 20,
                                 .erf_most = 6,
                                 .log1p_small = 0x1p53,
                                 .log1p_least = 0x1p-60,
                                 .gelu_most = 38.6,
                                 .middle = 4,
                                 .tail_low = -2.2175033409973907e-17,
                                 .exp = exp_f64,
                                 .atanh = atanh_f64,
                                 .erf = erf_f64,
                                 .tail = tail_f64};

/// Appends arithmetic to a function; the code reads like formulas.
class Expansion {
  public:
    explicit Expansion(ir::Function& function)
        : function_(function), numbers_(function.compute == DType::f64 ? numbers_f64 : numbers_f32) {}

    ValueId run(Op op, ValueId operand) {
        const E a{this, operand};
        switch (op) {
            case Op::exp: return exp(apply(Op::min, at_least(a, numbers_.exp_least), number(numbers_.exp_most))).id;
            case Op::exp2: return exp2(apply(Op::min, at_least(a, numbers_.exp2_least), number(numbers_.exp2_most))).id;
            case Op::sigmoid: return quotient(sigmoid(a)).id;
            case Op::silu: return silu(a).id;
            case Op::gelu_tanh: return gelu_tanh(a).id;
            case Op::tanh: return tanh(a).id;
            case Op::log: return log(a).id;
            case Op::log1p: return log1p(a).id;
            case Op::softplus:
                return (log_of_sum(exp(at_least(number(0) - apply(Op::abs, a), numbers_.exp_least))) + at_least(a, 0))
                    .id;
            case Op::erf: return erf(a).id;
            case Op::gelu: return gelu(a).id;
            case Op::round: return round(a).id;
            case Op::round_e8m0: return round_e8m0(a).id;
            default: return ir::no_value;
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

    E number(double value) { return {this, append(function_, value)}; }
    E apply(Op op, E a, E b) { return {this, append(function_, op, a.id, b.id)}; }
    E apply(Op op, E a) { return {this, append(function_, op, a.id)}; }
    E at_least(E a, double least) { return apply(Op::max, a, number(least)); }

    E polynomial(E x, std::span<const double> coefficients) {
        E sum = number(coefficients.back());
        for (size_t i = coefficients.size() - 1; i-- > 0;) sum = sum * x + coefficients[i];
        return sum;
    }

    /// Returns the nearest integer.
    E rounded(E a) { return (a + numbers_.rounding) - numbers_.rounding; }
    /// Returns the integer nearest to a / ln 2.
    E halvings(E a) { return rounded(a * numbers_.log2_e); }
    /// Returns exp(r) - 1 - r for |r| <= ln(2) / 2.
    E curve(E r) { return r * r * polynomial(r, numbers_.exp); }
    /// Returns exp(r) - 1 for |r| <= ln(2) / 2.
    E expm1(E r) { return curve(r) + r; }
    /// Returns a * b minus the rounded product.
    E product_error(E a, E b) { return apply(Op::product_error, a, b); }

    /// Returns a - k * ln 2.
    E rest_of(E a, E k) { return a - k * numbers_.ln2_high - k * numbers_.ln2_low; }
    /// Returns exp(rest) * 2^k.
    E power_of(E rest, E k) { return apply(Op::ldexp, expm1(rest) + 1, k); }

    /// Returns exp(a) for an `a` in the range of exp.
    E exp(E a) {
        const E k = halvings(a);
        return power_of(rest_of(a, k), k);
    }

    /// Returns 2^a for an `a` in the range of exp2. The difference from the integer is exact.
    E exp2(E a) {
        const E k = rounded(a);
        return power_of((a - k) * std::numbers::ln2, k);
    }

    /// A quotient.
    struct Fraction {
        E over, under;
    };

    /// Returns sigmoid(a + low), where `low` is too small to be a part of a. Adds 1 to the power of two first. That sum
    /// is exact for most powers; `lost` is what rounding removes from it.
    Fraction sigmoid(E a, E low) {
        const E x = apply(Op::min, at_least(a, numbers_.exp_least), number(numbers_.sigmoid_most));
        const E k = halvings(x);
        const E small = low.id == ir::no_value ? k * numbers_.ln2_low : k * numbers_.ln2_low - low;
        const E m = expm1((k * numbers_.ln2_high - x) + small);  // early, so that few values occupy registers meanwhile
        const E power = apply(Op::ldexp, number(1), k);
        const E sum = power + 1, lost = power - (sum - 1);
        return {power, sum + (m + lost)};
    }
    Fraction sigmoid(E a) { return sigmoid(a, {this, ir::no_value}); }

    E quotient(const Fraction& fraction) { return fraction.over / fraction.under; }

    /// Returns a * gate with one rounding less than a product with the quotient. The power of two in the numerator is
    /// infinite for large numbers, whose result is `a`.
    E gated(E a, double least, const Fraction& gate) {
        return apply(Op::min, at_least(a, least) * gate.over / gate.under, apply(Op::abs, a));
    }

    E silu(E a) { return gated(a, numbers_.exp_least, sigmoid(a)); }

    /// Returns value + low, minus `value` rounded to the compute type.
    double low_of(double value, double low) {
        const bool wide = function_.compute == DType::f64;
        return value - (wide ? value : static_cast<double>(static_cast<float>(value))) + low;
    }

    /// exp multiplies the error of its argument by the argument. So x * (linear + cubic * x^2) is the sum of two
    /// numbers.
    E gelu_tanh(E a) {
        constexpr double few_digits = 1.595703125;  // of linear, so that subtracting a sum from it is exact
        constexpr double most = ir::gelu_tanh_far;
        const E x = apply(Op::min, at_least(a, -most), number(most));
        const E square = x * x, cubic = number(ir::gelu_cubic);
        const E product = square * cubic, factor = product + few_digits;
        const E rest = product_error(square, cubic) + (ir::gelu_linear - few_digits + ir::gelu_linear_low);
        const E low = ((number(few_digits) - factor) + product) + rest;
        const E all = product_error(x, x) * cubic + (square * low_of(ir::gelu_cubic, ir::gelu_cubic_low) + low);
        const E v = x * factor;
        return gated(a, -most, sigmoid(v, product_error(x, factor) + x * all));
    }

    /// With m = exp(2 * |a|) - 1, which loses no digits near 0, tanh(|a|) is m / (m + 2). `lost` is what rounding
    /// removed from the sum, and (1 - quotient) / 2 is 1 / (m + 2).
    E tanh(E a) {
        const E half = apply(Op::min, apply(Op::abs, a), number(numbers_.tanh_most));
        const E x = half + half;
        const E k = halvings(x);
        const E power = apply(Op::ldexp, number(1), k);
        const E m = expm1(rest_of(x, k)) * power + (power - 1);
        const E sum = m + 2, lost = apply(Op::min, m, number(2)) - (sum - at_least(m, 2));
        const E quotient = m / sum;
        return apply(Op::copysign, quotient - quotient * lost * (number(0.5) - quotient * 0.5), a);
    }

    E log(E a) {
        const E k = apply(Op::exponent, a);
        return k * numbers_.ln2_high + (k * numbers_.ln2_low + log_of_sum(apply(Op::mantissa, a) - 1));
    }

    /// Returns log(1 + f) = 2 * atanh(f / (2 + f)) for f from -1/4 to 1, as f - (f^2 / 2 - ...), because f has no
    /// error.
    E log_of_sum(E f) {
        const E s = f / (f + 2);
        const E square = s * s, half = f * f * 0.5;
        return f - (half - s * (square * polynomial(square, numbers_.atanh) + half));
    }

    /// Returns log(u), where u is 1 + a rounded, plus what the rounding removed: log(1 + (1 + a - u) / u), which is
    /// about (1 + a - u) / u and matters only for small a. The limits prevent infinity minus infinity, and 0 / 0.
    E log1p(E a) {
        const E small = apply(Op::min, a, number(numbers_.log1p_small)), u = small + 1;
        return log(a + 1) + (small - (u - 1)) / at_least(u, numbers_.log1p_least);
    }

    /// Returns exp(t^2 / 2) * erfc(t / sqrt(2)) / 2 for t >= 0: the tail of the normal distribution, divided by its
    /// density.
    E tail(E t) {
        const E inverse = number(1) / (t + numbers_.middle);
        return polynomial((t - numbers_.middle) * inverse, numbers_.tail) * inverse;
    }

    /// Uses a polynomial for |a| up to 1, and 1 - erfc(|a|) beyond. The weight is 0 or 1, because (|a| - 1) * 2^60 is
    /// never between 0 and 1.
    E erf(E a) {
        const E x = apply(Op::abs, a);
        const E small = apply(Op::min, x, number(1)), large = apply(Op::min, x, number(numbers_.erf_most));
        const E inside = small * polynomial(small * small, numbers_.erf) + small;
        const E beyond = number(1) - exp(number(0) - large * large) * (tail(large * (2 * ir::root_half)) * 2);
        const E weight = apply(Op::min, at_least(x * 0x1p60 - 0x1p60, 0), number(1));
        return apply(Op::copysign, weight * beyond + (number(1) - weight) * inside, a);
    }

    /// Returns max(a, 0) - |a| * erfc(|a| / sqrt(2)) / 2, which loses no digits below 0. With x = |a|, the product is
    /// x * tail(x) * exp(-x^2 / 2). Its factors are sums of two numbers, except the small ones.
    E gelu(E a) {
        const E x = apply(Op::min, apply(Op::abs, a), number(numbers_.gelu_most));
        const E exponent = x * x * -0.5, k = halvings(exponent);
        const E r = (exponent - k * numbers_.ln2_high) - (k * numbers_.ln2_low + product_error(x, x) * 0.5);
        const E bend = curve(r);
        const Sum weighted = weighted_tail(x);
        const E product = weighted.high + (weighted.high * r + (weighted.high * bend + weighted.low));
        return at_least(a, 0) - apply(Op::ldexp, product, k);
    }

    /// A number without the error of a rounding.
    struct Sum {
        E high, low;
    };

    /// Returns x * tail(x) for x >= 0. With w = x / (x + middle), the argument of the polynomial is 2 * w - 1. abs keeps
    /// w * sum from becoming part of an FMA.
    Sum weighted_tail(E x) {
        const double middle = numbers_.middle, first = numbers_.tail[0];
        const E sum = x + middle, sum_low = x - (sum - middle);
        const E w = x / sum;
        const E left = (x - apply(Op::abs, w * sum)) - product_error(w, sum) - w * sum_low;
        const E w_low = left * (w * (-1 / middle) + 1 / middle);
        const E argument = w * 2 - 1, slope = polynomial(argument, numbers_.tail.subspan(1));
        const E product = argument * slope, high = product + first;
        const E low = w_low * 2 * slope +
                      ((number(first) - high) + product + (product_error(argument, slope) + numbers_.tail_low));
        const E result = w * high;
        return {result, product_error(w, high) + (w * low + w_low * high)};
    }

    /// All numbers from all_whole on are whole, so adding and subtracting it rounds smaller numbers. Larger ones are
    /// kept: their weight is 1.
    E round(E a) {
        const E x = apply(Op::abs, a), whole = number(numbers_.all_whole);
        const E weight = at_least(apply(Op::compare, x, whole), 0);
        const E small = (apply(Op::min, x, whole) + numbers_.all_whole) - numbers_.all_whole;
        return apply(Op::copysign, apply(Op::max, small, x * weight), a);
    }

    /// The mantissa lies between 3/4 and 3/2. If it exceeds 1, the next power of two is above the number.
    E round_e8m0(E a) {
        const E x = apply(Op::min, at_least(a, ir::least_e8m0), number(ir::largest_e8m0));
        const E is_more = at_least(apply(Op::compare, apply(Op::mantissa, x), number(1)), 0);
        return apply(Op::ldexp, x * 0.0 + 1.0, apply(Op::exponent, x) + is_more);  // NaN stays NaN
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
