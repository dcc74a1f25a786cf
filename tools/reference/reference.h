// SPDX-License-Identifier: Apache-2.0
// The outputs by the formulas in spec.h, in double (long double for f64), and how far from them a correct kernel may
// be.
//
// The error of an element bounds what arithmetic in the spec's compute type can do to it before the one rounding at the
// store. It is carried along with every value (running error analysis: Higham, "Accuracy and Stability of Numerical
// Algorithms", 2002, section 3.3), u being half a unit in the last place of the compute type:
//   an operation adds u times its result, and half the smallest denormal where it can underflow;
//   a sum of terms t adds depth * u * sum |t|, depth being the number of additions that a term goes through:
//     row sums are kept in one sum per lane of a 64-byte vector, so N / lanes, plus 16 to fold lanes and unrolled sums;
//     column sums run over the rows of a group and then over the groups, so M + 1; over all slices S * M + 1.
//   a product of three or more factors, one of them a row's, may be taken in the formula's order or with the row's
//     factors first (dx = (dy * rstd) * gamma - ((x - mean) * (rstd * rstd * c1) + rstd * c2), dgamma's terms
//     (dy * rstd) * (x - mean)): the larger of the two bounds. They differ where an intermediate product underflows.
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
    double error = 0;  ///< infinite where the arithmetic can overflow, or where NaN or Inf came in: anything is right
    double error_per_addition = 0;  ///< column sums: what each of the M + 1 additions of a term has in `error`

    /// For a column sum whose terms go through at most this many additions.
    Gradient with_additions(int64_t rows, int64_t additions) const {
        const int64_t fewer = rows + 1 - additions;
        return fewer <= 0 ? *this : Gradient{value, error - static_cast<double>(fewer) * error_per_addition, 0};
    }
};

/// One element per element of each output of the spec; empty for all other tensors.
using Gradients = PerTensor<std::vector<Gradient>>;

/// `inputs`: the decoded elements of every tensor that the spec reads, rows and slices packed. The spec must be valid.
Gradients compute(const Spec& spec, Batch batch, const PerTensor<std::vector<double>>& inputs);

/// The same for slices of `rows` rows of which the inputs hold the first `made.rows`, at least one: those that follow
/// repeat them. Of outputs with rows those that were made.
Gradients compute_repeated(const Spec& spec, Batch made, int64_t rows, const PerTensor<std::vector<double>>& inputs);

/// Whether a kernel may have stored `got`, an element of this type: it lies between the roundings of value - error and
/// value + error. Rounding is monotone, so every result within the error passes, and nothing else does.
bool agrees(const Gradient& expected, double got, DType type);

}  // namespace normjit::reference
