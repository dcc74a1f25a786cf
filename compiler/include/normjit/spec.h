// SPDX-License-Identifier: Apache-2.0
// The problem: which norm-backward, of which shape, with which tensors. Says nothing about how or where.
//
//     xhat = (x - mean) * rstd                        (rmsnorm: x * rstd)
//     g    = dy * (gamma + gamma_offset)              (no gamma: dy)
//     c1   = row_mean(g * xhat)     c2 = row_mean(g)  (rmsnorm: no c2)
//     dx   = rstd * (g - xhat * c1 - c2) + dresidual
//     dgamma = col_sum(dy * xhat)   dbeta = col_sum(dy)
//
// Maths: Ba, Kiros, Hinton, "Layer Normalization" (2016); Zhang, Sennrich, "Root Mean Square Layer Normalization"
// (2019).
#pragma once

#include "normjit/dtype.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace normjit {

enum class Norm : uint8_t { layernorm, rmsnorm };

/// What the tensor `x` holds: the layer's input, the normalised value, or the layer's output
/// (then xhat = (y - beta) / (gamma + gamma_offset), taken as 0 in a column where gamma + gamma_offset is 0: what that
/// column held is lost, so its dgamma is 0 and its dx lacks the xhat * c1 term; every other column stays right).
enum class Source : uint8_t { x, xhat, y };

/// Statistics are read as saved by the forward pass, or computed again from x in two passes with eps.
enum class Stats : uint8_t { saved, recompute };

struct Spec {
    Norm norm = Norm::layernorm;
    std::optional<int64_t> rows;  ///< M; nothing: any M, given at launch
    int64_t cols = 0;             ///< N, at least 1
    Source source = Source::x;
    Stats stats = Stats::saved;
    double eps = 1e-5;          ///< added to the variance (rmsnorm: to the mean square); stats=recompute only
    double gamma_offset = 0.0;  ///< added to gamma before use: 1 for zero-centred gamma

    /// The element type of every tensor that a launch reads or writes; nothing: the tensor plays no part.
    /// Row and column shapes are [M] and [N]; all others [M,N] with a row stride given at launch.
    PerTensor<std::optional<DType>> dtypes;

    bool has(Tensor tensor) const { return dtypes[tensor].has_value(); }
    /// The type of all arithmetic: f32, or f64 when x is f64.
    DType compute() const { return compute_type(dtypes[Tensor::x].value_or(DType::f32)); }

    bool operator==(const Spec&) const = default;
};

/// Reads "layernorm rows=4096 cols=4096 x=bf16 gamma=f32 out=dx,dgamma,dbeta". Keys in any order, each at most once:
///   rows cols                        sizes; no rows: any number of rows
///   x dy dx gamma dgamma dbeta       f32|bf16|f16|f64. Defaults: x f32; dy, dx as x; gamma as x, or none for no
///   affine;
///     dresidual beta                 dgamma, dbeta as gamma; dresidual none; beta as gamma (read by source=y only)
///   out                              any of dx,dgamma,dbeta. Default: dx, dgamma if there is a gamma, dbeta for
///   layernorm source=x|xhat|y                  what the tensor x holds stats=saved|recompute|<dtype>    saved
///   statistics are of this type (saved: the compute type) eps gamma_offset                 numbers
/// The error names the key, the value and what is allowed. The result has passed validate().
Expected<Spec> parse_spec(std::string_view text);

/// The shortest text that parse_spec() reads back as an equal Spec.
std::string to_text(const Spec& spec);

/// Whether the parts of the spec can be combined. parse_spec() has done it; needed after filling a Spec by hand.
Status validate(const Spec& spec);

/// The traffic floor of the problem in bytes for `rows` rows: every tensor read or written once.
int64_t bytes_moved(const Spec& spec, int64_t rows);

uint64_t hash(const Spec& spec);

}  // namespace normjit
