// SPDX-License-Identifier: Apache-2.0
// The problem: which pass of which norm, of which shape, with which tensors; but not how or where it is computed.
//
// Forward:
//     h    = x * rowscale + residual                  (rowscale and residual are optional)
//     mean = row_mean(h)    rstd = rsqrt(row_mean((h - mean)^2) + eps)      (rmsnorm: no mean)
//     y    = (h - mean) * rstd * (gamma + gamma_offset) + beta              (as far as these exist)
// Backward, where the tensor x holds h, the values that were normalised:
//     xhat = (x - mean) * rstd                        (rmsnorm: x * rstd)
//     g    = dy * (gamma + gamma_offset)              (no gamma: dy)
//     c1   = row_mean(g * xhat)     c2 = row_mean(g)  (rmsnorm: no c2)
//     dh   = rstd * (g - xhat * c1 - c2) + dresidual
//     dx   = dh * rowscale          dresidual_in = dh, in its own type
//     dgamma = col_sum(dy * xhat)   dbeta = col_sum(dy)   each added to its old value on request
// The rows may come in slices, [S,M,N]. A column tensor is then either shared by all slices, [N], and its gradient sums
// over all rows; or it has a row for each slice, [S,N], and its gradient sums over the rows of the slice.
//
// Maths: Ba, Kiros, Hinton, "Layer Normalization" (2016); Zhang, Sennrich, "Root Mean Square Layer Normalization"
// (2019).
#pragma once

#include "normjit/batch.h"
#include "normjit/choices.h"
#include "normjit/dtype.h"
#include "normjit/formula.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// The most columns. The number of a column then fits in a signed 32-bit register on every target.
inline constexpr int64_t max_cols = INT32_MAX;

/// A tensor of a problem. With slices, matrices are [S,M,N] and rows [S,M]; the strides of both are given at launch.
struct TensorSpec {
    DType dtype = DType::f32;
    Axes axes;
    bool accumulate = false;  ///< column outputs: added to the old value, in compute(), before the sum is rounded once
    bool operator==(const TensorSpec&) const = default;
};

struct Spec {
    Norm norm = Norm::layernorm;
    FormulaPointer formula;  ///< replaces the norm; made by parse_spec(), with the pass and the numbers in its text
    Pass pass = Pass::backward;
    std::optional<int64_t> rows;        ///< M; not set: the launch gives it
    std::optional<int64_t> slices = 1;  ///< S; not set: the launch gives it
    int64_t cols = 0;                   ///< N, 1..max_cols
    Source source = Source::x;
    Stats stats = Stats::saved;
    Rounding rounding = Rounding::none;
    double eps = 1e-5;          ///< added to the variance (rmsnorm: to the mean square); only with Stats::recompute
    double gamma_offset = 0.0;  ///< added to gamma before it is used: 1 for zero-centred gamma

    /// Every tensor that a launch reads or writes; unused ones are not set. Only x always exists, because it decides
    /// compute(); see reads(). With Stats::recompute, mean and rstd are outputs.
    PerTensor<std::optional<TensorSpec>> tensors;

    /// The elements of matrix and [M] outputs have the same bits for any M and any position of their row, in all specs
    /// that differ only in rows: no schedule may add the elements of a row in another order.
    bool invariant = false;

    /// Gives the tensor an element type, or removes it. A new tensor has the axes of its kind; slices share its
    /// columns.
    void set(Tensor tensor, std::optional<DType> dtype);
    /// Gives gamma or beta, and its gradient, a row for each slice, or one row for all slices. Only for specs with
    /// slices.
    void set_per_slice(Tensor column, bool is_per_slice);

    /// Return the tensor's name, and whether it is an output: a launch writes an output, and reads it only to add to
    /// it.
    std::string_view name(Tensor tensor) const;
    /// Returns the tensor with this name, if the layer has it.
    std::optional<Tensor> find(std::string_view name) const;
    bool is_output(Tensor tensor) const;
    /// Returns "layernorm", or the name of the formula.
    std::string_view norm_name() const;

    bool has(Tensor tensor) const { return tensors[tensor].has_value(); }
    /// Returns the element type of an existing tensor.
    DType dtype(Tensor tensor) const { return tensors[tensor]->dtype; }
    std::optional<DType> dtype_if(Tensor tensor) const {
        return has(tensor) ? std::optional(dtype(tensor)) : std::nullopt;
    }
    const Axes& axes(Tensor tensor) const { return tensors[tensor]->axes; }
    /// Returns the axes of a tensor that a layer of this kind may have, although a launch may not need it.
    Axes declared_axes(Tensor tensor) const;
    bool is_matrix(Tensor tensor) const { return has(tensor) && axes(tensor).is_matrix(); }
    /// Returns the number of columns in a group of group_max(); 0 if there is none.
    int64_t group_columns() const { return formula ? formula->group_columns : 0; }
    bool accumulates(Tensor tensor) const { return has(tensor) && tensors[tensor]->accumulate; }
    bool is_per_slice(Tensor tensor) const { return has(tensor) && tensors[tensor]->axes.is_per_slice(); }
    bool has_per_slice() const;
    bool has_slices() const { return slices != 1; }
    /// True if the slices cannot be treated as one slice with all their rows, because a column tensor has a row for
    /// each slice, or all slices share a matrix.
    bool tells_slices_apart() const;
    /// Returns nothing if M or S is given at launch.
    std::optional<Batch> batch() const {
        return rows && slices ? std::optional<Batch>({*rows, *slices}) : std::nullopt;
    }
    std::optional<int64_t> all_rows() const { return batch() ? std::optional(batch()->all_rows()) : std::nullopt; }

    /// True if a launch reads this input. That is every input with a type, except x if dbeta is the only output; its
    /// pointer may then be null.
    bool reads(Tensor tensor) const;
    bool writes(Tensor tensor) const { return has(tensor) && is_output(tensor); }
    /// True if the outputs depend on the content of the tensor before a launch, because it is read or added to.
    bool depends_on(Tensor tensor) const { return reads(tensor) || accumulates(tensor); }
    bool writes_matrices() const;
    /// True for a formula with neighbour(), which computes the columns of a pair together.
    bool has_neighbours() const { return formula && formula->has_neighbours; }
    bool takes_part(Tensor tensor) const { return reads(tensor) || writes(tensor); }
    /// Returns the type in which a framework keeps h, and so xhat: the type of the output h if there is one, else the
    /// type to which x and the residual are promoted.
    DType stream_type() const;
    /// Returns the type of all arithmetic: f64 if x (in a formula: a matrix) is f64, else f32.
    DType compute() const;

    bool operator==(const Spec&) const = default;
};

/// Parses "layernorm rows=4096 cols=4096 x=bf16 gamma=f32 out=dx,dgamma,dbeta": the norm, then keys in any order, each
/// at most once. SPEC.md lists the keys. They come from keys.def and, for tensors and their types, from tensors.def. An
/// error names the key, the value and what is allowed. The result is canonical() and has passed validate().
Expected<Spec> parse_spec(std::string_view text);

/// Returns the names with which the text of a spec may begin: layernorm, rmsnorm, and the formulas of templates/norms.
std::vector<std::string_view> norm_names();

/// Returns the shortest text that parse_spec() reads back as an equal Spec. The spec must pass validate().
std::string to_text(const Spec& spec);

/// Returns the same problem without anything that no requested output depends on: types of inputs that nobody reads,
/// statistics that nobody needs, a source if only dbeta is requested. Two specs of one problem become equal.
Spec canonical(Spec spec);

/// Checks that the spec is canonical() and that its parts can be combined. Call it for a Spec that was not parsed.
Status validate(const Spec& spec);

/// Returns the least traffic of the problem, in bytes, for a batch without negative sizes: every tensor is read or
/// written once. Returns INT64_MAX if the traffic is larger than that.
int64_t bytes_moved(const Spec& spec, Batch batch);

/// Returns the number of elements of one of the spec's tensors if its rows have no gaps.
int64_t elements_of(const Spec& spec, Tensor tensor, Batch batch);
int64_t bytes_of(const Spec& spec, Tensor tensor, Batch batch);

/// Returns a hash that is equal for equal specs, in every process and on every machine.
uint64_t hash(const Spec& spec);

}  // namespace normjit
