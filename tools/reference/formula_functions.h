// SPDX-License-Identifier: Apache-2.0
// The functions of formulas and their derivatives.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>

namespace normjit::reference {

/// A function of one number and its derivative, in double or wider.
template <class Real>
struct Function {
    const char* name;
    Real (*value)(Real);
    Real (*derivative)(Real);
    /// The error of the value per relative error in the argument of an inner function.
    Real (*inner)(Real) = [](Real) { return Real(0); };
};

template <class Real>
Real sigmoid(Real x) {
    return 1 / (1 + std::exp(-x));
}
template <class Real>
Real gelu_tanh_argument(Real x) {
    return Real(0.79788456080286535587989211986876L) * (x + Real(0.044715L) * x * x * x);
}

template <class Real>
constexpr Function<Real> functions[] = {
    {"exp", [](Real x) { return std::exp(x); }, [](Real x) { return std::exp(x); }},
    {"exp2", [](Real x) { return std::exp2(x); },
     [](Real x) { return std::exp2(x) * Real(0.69314718055994530941723212145818L); }},
    {"log", [](Real x) { return std::log(x); }, [](Real x) { return 1 / x; }},
    {"log1p", [](Real x) { return std::log1p(x); }, [](Real x) { return 1 / (1 + x); }},
    {"tanh", [](Real x) { return std::tanh(x); }, [](Real x) { return 1 - std::tanh(x) * std::tanh(x); }},
    {"sigmoid", [](Real x) { return sigmoid(x); }, [](Real x) { return sigmoid(x) * (1 - sigmoid(x)); }},
    {"silu", [](Real x) { return x * sigmoid(x); }, [](Real x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }},
    {"softplus", [](Real x) { return std::max(x, Real(0)) + std::log1p(std::exp(-std::fabs(x))); },
     [](Real x) { return sigmoid(x); }},
    {"erf", [](Real x) { return std::erf(x); },
     [](Real x) { return Real(1.1283791670955125738961589031215L) * std::exp(-x * x); }},
    {"gelu", [](Real x) { return x / 2 * std::erfc(-x * Real(0.70710678118654752440084436210485L)); },
     [](Real x) {
         return std::erfc(-x * Real(0.70710678118654752440084436210485L)) / 2 +
                x * Real(0.39894228040143267793994605993438L) * std::exp(-x * x / 2);
     },
     // through max(x, 0) - |x| * tail, where the tail is a product with exp(-x^2 / 2)
     [](Real x) {
         return x * std::erfc(std::fabs(x) * Real(0.70710678118654752440084436210485L)) / 2 * (1 + x * x / 2);
     }},
    // Uses the logistic function, (1 + tanh(u)) / 2 = sigmoid(2 * u), which loses no digits where it is near 0.
    {"gelu_tanh", [](Real x) { return x * sigmoid(2 * gelu_tanh_argument(x)); },
     [](Real x) {
         const Real s = sigmoid(2 * gelu_tanh_argument(x));
         const Real slope = Real(0.79788456080286535587989211986876L) * (1 + 3 * Real(0.044715L) * x * x);
         return s + x * s * (1 - s) * 2 * slope;
     },
     [](Real x) {
         const Real u = 2 * gelu_tanh_argument(x);
         return x * sigmoid(u) * sigmoid(-u) * u;
     }},
    {"sqrt", [](Real x) { return std::sqrt(x); }, [](Real x) { return 1 / (2 * std::sqrt(x)); }},
    {"sqrt_or_zero", [](Real x) { return std::sqrt(x); },
     [](Real x) { return x == 0 ? Real(0) : 1 / (2 * std::sqrt(x)); }},
    {"rsqrt", [](Real x) { return 1 / std::sqrt(x); }, [](Real x) { return -1 / (2 * x * std::sqrt(x)); }},
    {"relu", [](Real x) { return x < 0 ? Real(0) : x; }, [](Real x) { return x > 0 ? Real(1) : Real(0); }},
    {"abs", [](Real x) { return std::fabs(x); }, [](Real x) { return x > 0   ? Real(1)
                                                                     : x < 0 ? Real(-1)
                                                                             : Real(0); }},
};

template <class Real>
const Function<Real>* find_function(std::string_view name) {
    for (const Function<Real>& function : functions<Real>) {
        if (name == function.name) return &function;
    }
    return nullptr;
}

}  // namespace normjit::reference
