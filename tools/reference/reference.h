// SPDX-License-Identifier: Apache-2.0
// Computes the outputs by the formulas in spec.h, in double (long double for f64), and how far a correct kernel may be
// from them.
//
// The error of an element bounds what arithmetic in the spec's compute type can do to it before it is rounded once when
// it is stored. The error is carried along with every value (running error analysis: Higham, "Accuracy and Stability of
// Numerical Algorithms", 2002, section 3.3), where u is half a unit in the last place of the compute type:
//   an operation adds u times its result, and half the smallest denormal if it can underflow;
//   a sum of terms t adds depth * u * sum |t|, where depth is the number of additions that a term goes through:
//     row sums are kept in one sum per lane of a 64-byte vector, so N / lanes, plus 16 to fold lanes and unrolled sums;
//     column sums run over the rows of a group and then over the groups, so M + 1; over all slices, S * M + 1.
//   a product of three or more factors, one of which belongs to a row, may be taken in the order of the formula or with
//     the row's factors first (dx = (dy * rstd) * gamma - ((x - mean) * (rstd * rstd * c1) + rstd * c2), dgamma's terms
//     (dy * rstd) * (x - mean)): the larger of the two bounds. They differ if an intermediate product underflows.
// Fused multiply-adds round less often than the bound assumes. No constant in it was fitted to what kernels do.
#pragma once

#include "normjit/dtype.h"
#include "normjit/spec.h"
#include "normjit/tensor.h"

#include <cstdint>
#include <vector>

namespace normjit::reference {

struct Gradient {
    double value = 0;
    double error = 0;  ///< infinite if the arithmetic can overflow, or if an input is NaN or Inf: then every result is
                       ///< right
    double error_per_addition = 0;  ///< column sums: how much each of a term's M + 1 additions contributes to `error`

    /// Returns the value for a column sum whose terms go through at most this many additions.
    Gradient with_additions(int64_t rows, int64_t additions) const {
        const int64_t fewer = rows + 1 - additions;
        return fewer <= 0 ? *this : Gradient{value, error - static_cast<double>(fewer) * error_per_addition, 0};
    }
};

/// The elements of each output of the spec; empty for all other tensors.
using Gradients = PerTensor<std::vector<Gradient>>;

/// Computes all outputs. `inputs` holds the decoded elements of every tensor that the spec reads, with rows and slices
/// packed. The spec must be valid.
Gradients compute(const Spec& spec, Batch batch, const PerTensor<std::vector<double>>& inputs);

/// Computes the outputs for slices of `rows` rows, of which the inputs hold the first `made.rows` (at least one); the
/// others repeat them. Outputs with rows contain only those that were made.
Gradients compute_repeated(const Spec& spec, Batch made, int64_t rows, const PerTensor<std::vector<double>>& inputs);

/// True if a kernel may have stored `got`, an element of this type: it must lie between the roundings of value - error
/// and value + error. Rounding is monotone, so all results within the error pass, and no others do.
bool agrees(const Gradient& expected, double got, DType type);

}  // namespace normjit::reference
