// SPDX-License-Identifier: Apache-2.0
#include "normjit/spec.h"

#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr double default_eps = Spec().eps;

Status error(std::string_view key, std::string_view value, std::string_view reason) {
    return invalid_argument(fmt::format("spec: {}={}: {}", key, value, reason));
}

Status error(const Spec& spec, Tensor tensor, std::string_view reason) {
    const auto type = spec.dtypes[tensor];
    const bool statistic = info(tensor).shape == TensorShape::rows;
    return error(statistic ? "stats" : name(tensor), type ? name(*type) : "none", reason);
}

/// The gradient of x, under either name.
bool writes_dx(const Spec& spec) { return spec.has(Tensor::dx) || spec.has(Tensor::dresidual_in); }

/// Whether a requested gradient depends on xhat: all but dbeta = col_sum(dy) do.
bool needs_xhat(const Spec& spec) { return writes_dx(spec) || spec.has(Tensor::dgamma); }

bool writes_statistics(const Spec& spec) { return spec.writes(Tensor::mean) || spec.writes(Tensor::rstd); }

/// Saved statistics are needed by what depends on them, recomputed ones are outputs that were asked for.
bool needs_statistic(const Spec& spec, Tensor tensor) {
    const bool from_x = spec.source == Source::x;
    const bool there = tensor == Tensor::rstd || (from_x && spec.norm == Norm::layernorm);
    if (spec.stats == Stats::recompute) return there && from_x && spec.has(tensor);
    return there && (from_x ? needs_xhat(spec) : writes_dx(spec));
}

bool needed_by_forward(const Spec& spec, Tensor tensor) {
    switch (tensor) {
        case Tensor::gamma:
        case Tensor::beta:
            return spec.has(Tensor::y);
        case Tensor::mean:
            return spec.has(tensor) && spec.norm == Norm::layernorm;
        case Tensor::h:
            return spec.has(tensor) && (spec.has(Tensor::residual) || spec.has(Tensor::rowscale));
        case Tensor::y:
        case Tensor::rstd:
            return spec.has(tensor);
        default:
            return true;
    }
}

bool needed_by_backward(const Spec& spec, Tensor tensor) {
    const bool dx = writes_dx(spec);
    const bool xhat = needs_xhat(spec);
    switch (tensor) {
        case Tensor::dy:
            return true;
        case Tensor::x:
            return xhat || writes_statistics(spec);
        case Tensor::dresidual:
            return dx;
        case Tensor::gamma:
            return dx || (xhat && spec.source == Source::y);
        case Tensor::beta:
            return xhat && spec.source == Source::y;
        case Tensor::mean:
        case Tensor::rstd:
            return needs_statistic(spec, tensor);
        case Tensor::rowscale:
            return spec.has(Tensor::dx);
        default:
            return spec.has(tensor);
    }
}

/// Whether a requested output depends on the tensor, for a layer that has it.
bool needs(const Spec& spec, Tensor tensor) {
    if (!belongs_to(tensor, spec.pass)) return false;
    return spec.pass == Pass::forward ? needed_by_forward(spec, tensor) : needed_by_backward(spec, tensor);
}

/// Bytes of all tensors that a launch touches: those that grow with the rows, with the slices, and those that do not.
struct Traffic {
    int64_t per_row = 0;
    int64_t per_slice = 0;
    int64_t once = 0;
};

Traffic traffic(const Spec& spec) {
    Traffic bytes;
    for (Tensor tensor : all_tensors) {
        if (!spec.takes_part(tensor)) continue;
        const auto size = static_cast<int64_t>(size_of(*spec.dtypes[tensor]));
        switch (info(tensor).shape) {
            case TensorShape::matrix:
                bytes.per_row += size * spec.cols;
                break;
            case TensorShape::rows:
                bytes.per_row += size;
                break;
            case TensorShape::cols:
                (spec.is_per_slice(tensor) ? bytes.per_slice : bytes.once) +=
                    size * spec.cols * (spec.accumulate[tensor] ? 2 : 1);
                break;
        }
    }
    return bytes;
}

/// Rows of a slice at most, so that every size and offset in bytes fits 64 bits.
int64_t max_rows(const Spec& spec, int64_t slices) {
    const Traffic bytes = traffic(spec);
    const int64_t of_slice = (INT64_MAX - bytes.once) / std::max<int64_t>(slices, 1) - bytes.per_slice;
    return std::max<int64_t>(of_slice, 0) / std::max<int64_t>(bytes.per_row, 1);
}

/// Slices at most, of any number of rows: they and their bytes of one row are counted.
int64_t max_slices(const Spec& spec) {
    const Traffic bytes = traffic(spec);
    return (INT64_MAX - bytes.once) / std::max<int64_t>(bytes.per_row + bytes.per_slice, 1);
}

Status check_sizes(const Spec& spec) {
    const std::string cols = std::to_string(spec.cols);
    if (spec.cols < 1) return error("cols", cols, "must be at least 1");
    if (spec.cols > max_cols) return error("cols", cols, fmt::format("must be at most {}", max_cols));
    if (spec.slices) {
        const std::string slices = std::to_string(*spec.slices);
        if (*spec.slices < 1) return error("slices", slices, "must be at least 1");
        const int64_t most = max_slices(spec);
        if (*spec.slices > most)
            return error("slices", slices, fmt::format("must be at most {} with cols={}", most, cols));
    }
    if (!spec.rows) return {};
    const std::string rows = std::to_string(*spec.rows);
    if (*spec.rows < 0) return error("rows", rows, "must be at least 0");
    const int64_t slices = spec.slices.value_or(1), most = max_rows(spec, slices);
    if (*spec.rows <= most) return {};
    const std::string with = slices == 1 ? "" : fmt::format(" slices={}", slices);
    return error("rows", rows, fmt::format("must be at most {} with cols={}{}", most, cols, with));
}

Status check_number(const Spec& spec, std::string_view key, double value, double least) {
    const std::string shown = text::number(value);
    const double most = spec.compute() == DType::f64 ? DBL_MAX : FLT_MAX;
    if (!std::isfinite(value)) return error(key, shown, "must be finite");
    if (value < least) return error(key, shown, fmt::format("must be at least {}", text::number(least)));
    if (value > most || -value > most) return error(key, shown, "is beyond the range of f32");
    return {};
}

/// Mixing f64 with narrower types is of no use to anyone and would double the code of every load and store.
Status check_types(const Spec& spec) {
    const bool wide = spec.compute() == DType::f64;
    for (Tensor tensor : all_tensors) {
        if (!spec.has(tensor) || (spec.dtypes[tensor] == DType::f64) == wide) continue;
        return error(spec, tensor, wide ? "must be f64, as x is" : "f64 needs x=f64");
    }
    if (spec.has(Tensor::mean) && spec.has(Tensor::rstd) && spec.dtypes[Tensor::mean] != spec.dtypes[Tensor::rstd]) {
        return error(spec, Tensor::mean, "mean and rstd must have one type");
    }
    return {};
}

/// Why an output that is asked for cannot be told.
std::string_view unknown_output(const Spec& spec, Tensor tensor) {
    if (!belongs_to(tensor, spec.pass)) return spec.pass == Pass::forward ? "is of a backward" : "is of a forward";
    if (tensor == Tensor::h) return "is x without a residual or rowscale";
    return spec.source == Source::x ? "rmsnorm has no mean" : "statistics of x are known from source=x only";
}

/// A spec may say nothing that has no effect: equal problems then are equal specs, and share one cache key.
Status check_canonical(const Spec& spec) {
    for (Tensor tensor : all_tensors) {
        if (!spec.has(tensor) || tensor == Tensor::x || needs(spec, tensor)) continue;
        if (spec.writes(tensor)) return error("out", name(tensor), unknown_output(spec, tensor));
        return error(spec, tensor, "no requested output reads it; leave it out");
    }
    const Spec kept = canonical(spec);
    const bool forward = spec.pass == Pass::forward;
    if (spec.source != kept.source) {
        return error("source", name(spec.source), forward ? "a forward reads x" : "has no effect on dbeta alone");
    }
    if (spec.stats != kept.stats) {
        return forward ? error("stats", "saved", "a forward computes them")
                       : error("stats", "recompute", "no requested output needs statistics");
    }
    if (spec.eps != kept.eps) return error("eps", text::number(spec.eps), "needs stats=recompute");
    for (Tensor tensor : all_tensors) {
        if (spec.accumulate[tensor] != kept.accumulate[tensor])
            return error("accumulate", name(tensor), "is no output of the spec");
    }
    for (const Tensor tensor : all_tensors) {
        if (spec.per_slice[tensor] == kept.per_slice[tensor]) continue;
        return error("per_slice", name(tensor),
                     !spec.has_slices() ? "needs more slices than one, or any"
                                        : "is no tensor of the spec, nor is its gradient");
    }
    if (spec.invariant != kept.invariant) return error("invariant", "1", "no requested output has rows");
    if (spec.gamma_offset != kept.gamma_offset) {
        return error("gamma_offset", text::number(spec.gamma_offset), "needs a gamma that a requested output reads");
    }
    return {};
}

Status check_rounding(const Spec& spec) {
    const auto refuse = [&](std::string_view reason) { return error("rounding", name(spec.rounding), reason); };
    if (spec.rounding == Rounding::none) return {};
    if (spec.norm != Norm::rmsnorm) return refuse("is of rmsnorm");
    if (spec.source != Source::x) return refuse("needs source=x");
    if (spec.has(Tensor::beta) || spec.has(Tensor::dbeta)) return refuse("has no beta");
    return spec.gamma_offset == 0 ? Status() : refuse("has no gamma_offset");
}

Status check_forward(const Spec& spec) {
    const bool norms = spec.has(Tensor::y) || spec.has(Tensor::mean) || spec.has(Tensor::rstd);
    return norms ? Status() : error("out", "", "must name one of: y mean rstd");
}

Status check_backward(const Spec& spec) {
    if (!needs_xhat(spec) && !spec.has(Tensor::dbeta))
        return error("out", "", "must name one of: dx dresidual_in dgamma dbeta");
    if (spec.has(Tensor::dgamma) && needs(spec, Tensor::gamma) && !spec.has(Tensor::gamma)) {
        return error(spec, Tensor::gamma, "out has dgamma, the gradient of a gamma");
    }
    if (spec.stats == Stats::recompute && spec.source != Source::x && writes_dx(spec)) {
        return error("stats", "recompute",
                     fmt::format("dx needs rstd, which source={} does not tell; allowed: saved", name(spec.source)));
    }
    for (Tensor tensor : {Tensor::dy, Tensor::mean, Tensor::rstd}) {
        if (needs(spec, tensor) && !spec.has(tensor)) return error(spec, tensor, "is needed, so must have a type");
    }
    return {};
}

Status check_tensors(const Spec& spec) {
    if (!spec.has(Tensor::x)) return error(spec, Tensor::x, "must have a type");
    for (Tensor tensor : all_tensors) {
        if (spec.accumulate[tensor] && !may_be_accumulated(tensor))
            return error("accumulate", name(tensor), "only dgamma and dbeta, sums over the rows, can be added to");
        if (spec.per_slice[tensor] && tensor != Tensor::gamma && tensor != Tensor::beta)
            return error("per_slice", name(tensor), "only gamma and beta, with their gradients, have a row per slice");
    }
    return spec.pass == Pass::forward ? check_forward(spec) : check_backward(spec);
}

}  // namespace

std::string_view name(Norm norm) { return norm == Norm::layernorm ? "layernorm" : "rmsnorm"; }

std::string_view name(Pass pass) { return pass == Pass::backward ? "backward" : "forward"; }

std::string_view name(Rounding rounding) { return rounding == Rounding::none ? "none" : "llama"; }

DType promoted(DType a, DType b) {
    if (a == b) return a;
    return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

std::string_view name(Source source) {
    switch (source) {
        case Source::x:
            return "x";
        case Source::xhat:
            return "xhat";
        case Source::y:
            return "y";
    }
    return "invalid";
}

bool Spec::reads(Tensor tensor) const {
    return has(tensor) && may_be_read(tensor) && !writes(tensor) && needs(*this, tensor);
}

DType Spec::stream_type() const {
    const DType x = *dtypes[Tensor::x];
    if (has(Tensor::h)) return *dtypes[Tensor::h];
    return has(Tensor::residual) ? promoted(x, *dtypes[Tensor::residual]) : x;
}

bool Spec::writes_matrices() const {
    return std::ranges::any_of(all_tensors, [&](Tensor tensor) { return is_matrix(tensor) && writes(tensor); });
}

Spec canonical(Spec spec) {
    if (spec.pass == Pass::forward) {
        spec.source = Source::x;
        spec.stats = Stats::recompute;
    } else {
        if (!needs_xhat(spec)) spec.source = Source::x;
        const bool has_use = spec.source == Source::x ? needs_xhat(spec) || writes_statistics(spec) : writes_dx(spec);
        if (!has_use) spec.stats = Stats::saved;
    }
    if (spec.stats != Stats::recompute) spec.eps = default_eps;
    for (Tensor tensor : all_tensors) {
        if (tensor != Tensor::x && !needs(spec, tensor)) spec.dtypes[tensor].reset();
    }
    for (Tensor tensor : all_tensors) spec.accumulate[tensor] = spec.accumulate[tensor] && spec.has(tensor);
    const auto with_gradient = [&](Tensor tensor, Tensor gradient) { return spec.has(tensor) || spec.has(gradient); };
    spec.per_slice[Tensor::gamma] &= spec.has_slices() && with_gradient(Tensor::gamma, Tensor::dgamma);
    spec.per_slice[Tensor::beta] &= spec.has_slices() && with_gradient(Tensor::beta, Tensor::dbeta);
    if (!spec.has(Tensor::gamma)) spec.gamma_offset = 0;
    spec.invariant = spec.invariant && (spec.writes_matrices() || writes_statistics(spec));
    return spec;
}

Spec in_one_slice(Spec spec) {
    spec.rows = spec.all_rows();
    spec.slices = 1;
    return canonical(spec);
}

Status validate(const Spec& spec) {
    NORMJIT_RETURN_IF_ERROR(check_tensors(spec));
    NORMJIT_RETURN_IF_ERROR(check_sizes(spec));
    NORMJIT_RETURN_IF_ERROR(check_types(spec));
    NORMJIT_RETURN_IF_ERROR(check_rounding(spec));
    NORMJIT_RETURN_IF_ERROR(check_number(spec, "eps", spec.eps, 0));
    NORMJIT_RETURN_IF_ERROR(check_number(spec, "gamma_offset", spec.gamma_offset, -DBL_MAX));
    return check_canonical(spec);
}

int64_t bytes_moved(const Spec& spec, Batch batch) {
    if (batch.slices > max_slices(spec) || batch.rows > max_rows(spec, batch.slices)) return INT64_MAX;
    const Traffic bytes = traffic(spec);
    return bytes.per_row * batch.all_rows() + bytes.per_slice * batch.slices + bytes.once;
}

int64_t elements_of(const Spec& spec, Tensor tensor, Batch batch) {
    const TensorShape shape = info(tensor).shape;
    if (shape == TensorShape::cols) return (spec.is_per_slice(tensor) ? batch.slices : 1) * spec.cols;
    return batch.all_rows() * (shape == TensorShape::rows ? 1 : spec.cols);
}

int64_t bytes_of(const Spec& spec, Tensor tensor, Batch batch) {
    return elements_of(spec, tensor, batch) * static_cast<int64_t>(size_of(*spec.dtypes[tensor]));
}

uint64_t hash(const Spec& spec) { return text::hash(to_text(spec)); }

}  // namespace normjit
