// SPDX-License-Identifier: Apache-2.0
// A number with a bound on its rounding error. Real is wider than the arithmetic whose error is bounded: double bounds
// f32, long double bounds f64. reference.h states the rules.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

namespace normjit::reference {

template <class Real>
struct Rounding;

/// `unit` is 1 % more than half a unit in the last place, which covers the rounding of Real itself and the second-order
/// terms of sums.
template <>
struct Rounding<double> {
    static constexpr double unit = 1.01 * 0x1p-24;
    static constexpr double tiny = 0x1p-150;
    static constexpr double most = static_cast<double>(FLT_MAX);
    static constexpr int64_t lanes = 16;
    using Narrow = float;
};

template <>
struct Rounding<long double> {
    static constexpr long double unit = 1.01L * 0x1p-53L;
    static constexpr long double tiny = 0x1p-1075L;
    static constexpr long double most = static_cast<long double>(DBL_MAX);
    static constexpr int64_t lanes = 8;
    using Narrow = double;
};

template <class Real>
struct Bounded {
    Real value = 0;
    Real error = 0;
};

/// Returns `number` after one more rounding to the narrow type.
template <class Real>
Bounded<Real> rounded(const Bounded<Real>& number) {
    using R = Rounding<Real>;
    const Real size = std::fabs(number.value) + number.error;
    if (!(size <= R::most)) return {number.value, std::numeric_limits<Real>::infinity()};
    return {number.value, number.error + R::unit * size + R::tiny};
}

template <class Real>
Bounded<Real> operator+(const Bounded<Real>& a, const Bounded<Real>& b) {
    return rounded<Real>({a.value + b.value, a.error + b.error});
}

template <class Real>
Bounded<Real> operator-(const Bounded<Real>& a, const Bounded<Real>& b) {
    return rounded<Real>({a.value - b.value, a.error + b.error});
}

/// True if one of the factors is exactly 0 and the other finite.
template <class Real>
bool is_zero_product(const Bounded<Real>& a, const Bounded<Real>& b) {
    const auto is_zero = [](const Bounded<Real>& number) { return number.value == 0 && number.error == 0; };
    const auto is_finite = [](const Bounded<Real>& number) {
        return std::isfinite(std::fabs(number.value) + number.error);
    };
    return (is_zero(a) && is_finite(b)) || (is_zero(b) && is_finite(a));
}

template <class Real>
Bounded<Real> operator*(const Bounded<Real>& a, const Bounded<Real>& b) {
    if (is_zero_product(a, b)) return {};
    const Real error = std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error;
    return rounded<Real>({a.value * b.value, error});
}

template <class Real>
Bounded<Real> operator/(const Bounded<Real>& a, const Bounded<Real>& b) {
    const Real quotient = a.value / b.value;
    const Real least = std::fabs(b.value) - b.error;
    if (!(least > 0)) return {quotient, std::numeric_limits<Real>::infinity()};
    return rounded<Real>({quotient, (a.error + std::fabs(quotient) * b.error) / least});
}

/// Returns the quotient, and 0 where the divisor is 0.
template <class Real>
Bounded<Real> div_or_zero(const Bounded<Real>& a, const Bounded<Real>& b) {
    if (b.value != 0) return a / b;
    return {0, b.error == 0 ? Real(0) : std::numeric_limits<Real>::infinity()};
}

template <class Real>
Bounded<Real> sqrt(const Bounded<Real>& a) {
    const Real root = std::sqrt(a.value);
    if (!(a.value > a.error)) return {root, std::numeric_limits<Real>::infinity()};
    return rounded<Real>({root, root - std::sqrt(a.value - a.error)});
}

/// Returns the number after it is rounded to an element type. The error covers the roundings of both ends of its
/// interval.
template <class Real, class Round>
Bounded<Real> rounded_to(const Bounded<Real>& number, const Round& round) {
    const Real value = round(number.value);
    if (!std::isfinite(number.error)) return {value, number.error};
    const Real below = round(number.value - number.error), above = round(number.value + number.error);
    const Real error = std::max(above - value, value - below);
    return {value, std::isfinite(error) ? error : std::numeric_limits<Real>::infinity()};
}

/// A sum whose terms go through at most `depth` additions each, in any order.
template <class Real>
class Sum {
  public:
    /// Adds `times` equal terms.
    void add(const Bounded<Real>& term, Real times = 1) {
        value_ += times * term.value;
        size_ += times * (std::fabs(term.value) + term.error);
        error_ += times * term.error;
    }

    /// Returns the error that one more addition of every term causes.
    Real error_per_addition() const { return Rounding<Real>::unit * size_; }

    Bounded<Real> total(int64_t depth) const {
        using R = Rounding<Real>;
        if (!(size_ <= R::most)) return {value_, std::numeric_limits<Real>::infinity()};
        return {value_, error_ + static_cast<Real>(depth) * R::unit * size_};
    }

  private:
    Real value_ = 0, size_ = 0, error_ = 0;
};

}  // namespace normjit::reference
