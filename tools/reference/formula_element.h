// SPDX-License-Identifier: Apache-2.0
// The element-wise operations of formulas, with bounds on their errors.
#pragma once

#include "bounded.h"
#include "element.h"
#include "formula_functions.h"
#include "formula_program.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace normjit::reference {

template <class Real>
Bounded<Real> rounded_by(DType type, const Bounded<Real>& number) {
    return rounded_to(number,
                      [&](Real value) { return static_cast<Real>(round_to(type, static_cast<double>(value))); });
}

/// A function is accurate within 2.5 units in the last place, which is five times half a unit; so is the argument of an
/// inner function. The error of the argument is multiplied by the largest of the slopes at the ends and in the middle
/// of its interval.
template <class Real>
Bounded<Real> apply(const Function<Real>& function, const Bounded<Real>& a) {
    const Real value = function.value(a.value);
    Real slope = 0;
    for (const Real end : {a.value - a.error, a.value, a.value + a.error})
        slope = std::max(slope, std::fabs(function.derivative(end)));
    if (!std::isfinite(slope) || !std::isfinite(a.error)) return {value, std::numeric_limits<Real>::infinity()};
    const Real own = std::fabs(value) + std::fabs(function.inner(a.value));
    // Digits may be lost below the smallest normal number.
    const auto normal = static_cast<Real>(std::numeric_limits<typename Rounding<Real>::Narrow>::min());
    return rounded<Real>({value, slope * a.error + 5 * Rounding<Real>::unit * own + normal});
}

/// Returns a to the power of a number. Whole and half powers are products of a and its square root. Other powers are
/// exp(b * log(a)), whose argument has the errors of log and of a product.
template <class Real>
Bounded<Real> power(const Bounded<Real>& a, Real exponent) {
    const Real value = std::pow(a.value, exponent), size = std::fabs(exponent);
    const bool is_product = size * 2 == std::floor(size * 2);
    Real spread = 0;
    for (const Real end : {a.value - a.error, a.value + a.error})
        spread = std::max(spread, std::fabs(std::pow(end, exponent) - value));
    const bool is_whole = size == std::floor(size);
    const bool is_sure = is_whole ? exponent >= 0 || std::fabs(a.value) > a.error : a.value > a.error;
    if (!is_sure || !std::isfinite(spread)) return {value, std::numeric_limits<Real>::infinity()};
    const Real units = is_product ? 3 * size + 2 : 8 * std::fabs(exponent * std::log(a.value)) + 8 * size + 6;
    // Factors of the product may lose digits below the smallest normal number.
    const auto normal = static_cast<Real>(std::numeric_limits<typename Rounding<Real>::Narrow>::min());
    return rounded<Real>({value, spread + units * Rounding<Real>::unit * std::fabs(value) + (size > 1 ? normal : 0)});
}

/// True if the numbers are known to be different, or are exact.
template <class Real>
bool is_order_sure(const Bounded<Real>& a, const Bounded<Real>& b) {
    return std::fabs(a.value - b.value) > a.error + b.error || a.error + b.error == 0;
}

/// Returns a where the condition is greater than 0, and b everywhere else.
template <class Real>
Bounded<Real> where(const Bounded<Real>& condition, const Bounded<Real>& a, const Bounded<Real>& b) {
    const Bounded<Real>& chosen = condition.value > 0 ? a : b;
    return {chosen.value, is_order_sure(condition, {}) ? chosen.error : std::numeric_limits<Real>::infinity()};
}

/// Returns the result of an element-wise operation on a and b. If the operation is a function, `function` describes it.
template <class Real>
Bounded<Real> element(const Operation& operation, const Function<Real>* function, const Bounded<Real>& a,
                      const Bounded<Real>& b) {
    const Real unknown = std::numeric_limits<Real>::infinity();
    switch (operation.kind) {
        case Kind::add: return a + b;
        case Kind::subtract: return a - b;
        case Kind::multiply: return a * b;
        case Kind::divide: return a / b;
        case Kind::div_or_zero: return div_or_zero(a, b);
        case Kind::min: return {std::min(a.value, b.value), std::max(a.error, b.error)};
        case Kind::max: return {std::max(a.value, b.value), std::max(a.error, b.error)};
        case Kind::compare: {
            const Real order = a.value > b.value ? Real(1) : a.value < b.value ? Real(-1) : Real(0);
            return {order, std::fabs(a.value - b.value) > a.error + b.error || a.error + b.error == 0 ? 0 : unknown};
        }
        case Kind::power: return power(a, b.value);
        case Kind::like:
        case Kind::detach: return a;
        case Kind::partner:
        case Kind::rotate_half:
        case Kind::neighbour: return a;
        case Kind::round: return rounded_to(a, [](Real value) { return std::nearbyint(value); });
        case Kind::round_bf16: return rounded_by<Real>(DType::bf16, a);
        case Kind::round_f16: return rounded_by<Real>(DType::f16, a);
        case Kind::round_e8m0: return rounded_by<Real>(DType::e8m0, a);
        default: return function == nullptr ? Bounded<Real>{a.value, unknown} : apply(*function, a);
    }
}

}  // namespace normjit::reference
