// SPDX-License-Identifier: Apache-2.0
// What all norms have in common:
//     h = x * rowscale + residual    y = xhat * (gamma + gamma_offset) + beta    (each where there is one)
// The backward pass derives the gradient of h from it. There the tensor x holds h, or what source= names instead:
//     dx     = dh * rowscale    dgamma = col_sum(dy * xhat)    dbeta = col_sum(dy)    amax = max_abs(dx)
#include "frontend/frontend.h"
#include "gradient/differentiate.h"
#include "spec/formula.h"

#include <array>
#include <string>
#include <vector>

namespace normjit::frontend {

namespace {

using gradient::Given;
using ir::Builder;
using ir::Expr;

/// Returns the value rounded to the type, if the spec's rounding rounds here.
Expr rounded(const Spec& spec, DType type, Expr value) {
    return spec.rounding == Rounding::none ? value : round_to(type, value);
}

/// The type in which a framework multiplies xhat with a tensor.
DType product_type(const Spec& spec, Tensor tensor) { return promoted(spec.stream_type(), spec.dtype(tensor)); }

/// Returns gamma + gamma_offset, as the layer applied it. Only for specs with gamma.
Expr scale(Builder& b, const Spec& spec) {
    const Expr gamma = b.input(Tensor::gamma);
    return spec.gamma_offset == 0 ? gamma : b.name("scale", gamma + spec.gamma_offset);
}

Normalised normalise(Builder& b, const Spec& spec, Expr h) {
    return spec.norm == Norm::layernorm ? layernorm(b, spec, h) : rmsnorm(b, spec, h);
}

/// Writes an output that few ask for; without it in the spec the formula does not have it.
void write_asked(Builder& b, const Spec& spec, Tensor tensor, Expr value) {
    if (spec.writes(tensor)) b.output(tensor, value);
}

void write_statistics(Builder& b, const Spec& spec, const Normalised& normalised) {
    if (normalised.mean.builder != nullptr) write_asked(b, spec, Tensor::mean, normalised.mean);
    write_asked(b, spec, Tensor::rstd, normalised.rstd);
}

ir::Function forward(const Spec& spec) {
    Builder b(declare(spec));
    Expr h = b.input(Tensor::x);
    if (spec.has(Tensor::rowscale)) h = h * b.input(Tensor::rowscale);
    if (spec.has(Tensor::residual)) h = h + b.input(Tensor::residual);
    if (spec.has(Tensor::rowscale) || spec.has(Tensor::residual)) h = rounded(spec, spec.stream_type(), h);
    write_asked(b, spec, Tensor::h, h);
    const Normalised normalised = normalise(b, spec, b.name("h", h));
    write_statistics(b, spec, normalised);
    Expr y = rounded(spec, spec.stream_type(), normalised.xhat);
    if (spec.has(Tensor::gamma)) y = rounded(spec, product_type(spec, Tensor::gamma), y * scale(b, spec));
    b.output(Tensor::y, spec.has(Tensor::beta) ? y + b.input(Tensor::beta) : y);
    return std::move(b).finish();
}

/// Returns xhat if the spec's source is not x: xhat is then read, or recovered from the layer's output.
Expr xhat_from_source(Builder& b, const Spec& spec) {
    const Expr source = b.input(Tensor::x);
    if (spec.source == Source::xhat) return source;
    const Expr shifted = spec.has(Tensor::beta) ? source - b.input(Tensor::beta) : source;
    return spec.has(Tensor::gamma) ? div_or_zero(shifted, scale(b, spec)) : shifted;
}

/// Writes the sum over the rows, added to what the tensor holds if the spec accumulates.
void write_column_sum(Builder& b, const Spec& spec, Tensor tensor, Expr value) {
    const Expr sum = col_sum(value);
    if (!spec.accumulates(tensor)) return b.output(tensor, sum);
    const std::string name(normjit::name(tensor));
    const Expr before = b.input(tensor);
    b.output(tensor, b.name(name + "_total", before + b.name(name + "_sum", sum)));
}

ir::Function backward(const Spec& spec) {
    Builder b(declare(spec));
    const Expr x = b.input(Tensor::x);
    std::vector<Given> saved;
    Expr source{}, mean{}, rstd{};
    if (spec.source != Source::x) source = xhat_from_source(b, spec);
    const bool reads_rstd = spec.source != Source::x || spec.stats == Stats::saved;
    if (reads_rstd && spec.source == Source::x && spec.norm == Norm::layernorm) mean = b.input(Tensor::mean);
    if (reads_rstd) rstd = b.input(Tensor::rstd);

    const bool is_scaled = spec.has(Tensor::rowscale);
    const Expr h = is_scaled ? x * b.input(Tensor::rowscale) : x;
    if (is_scaled) saved.push_back({h, x});
    const Normalised normalised = normalise(b, spec, h);
    if (source.builder != nullptr) saved.push_back({normalised.xhat, source});
    if (mean.builder != nullptr) saved.push_back({normalised.mean, mean});
    if (reads_rstd)
        saved.push_back({normalised.rstd, rstd});
    else
        write_statistics(b, spec, normalised);
    const Expr kept = rounded(spec, spec.stream_type(), normalised.xhat);
    const Expr dy = b.input(Tensor::dy);
    const Expr y = spec.has(Tensor::gamma) ? kept * scale(b, spec) : kept;

    std::vector<Given> gradients{{y, dy}};
    if (spec.has(Tensor::dresidual)) gradients.push_back({h, b.input(Tensor::dresidual)});
    const auto derived = gradient::differentiate(b, gradients, std::array{h, x}, saved);
    b.output(Tensor::dx, derived->at(1));
    write_asked(b, spec, Tensor::dresidual_in, derived->at(0));
    write_column_sum(b, spec, Tensor::dgamma, rounded(spec, product_type(spec, Tensor::dy), dy * kept));
    write_column_sum(b, spec, Tensor::dbeta, dy);
    if (spec.writes(Tensor::amax)) b.output(Tensor::amax, max_abs(derived->at(1)));
    return std::move(b).finish();
}

}  // namespace

ir::Function declare(const Spec& spec) {
    if (spec.formula) return declare_formula(spec);
    ir::Function function{.cols = spec.cols, .compute = spec.compute(), .operands = {}, .values = {}, .outputs = {}};
    for (const Tensor tensor : all_tensors) {
        const bool is_output = is_statistic(tensor) ? spec.stats == Stats::recompute : may_be_written(tensor);
        function.operands[tensor] = {.name = std::string(name(tensor)),
                                     .shape = ir::shape_of(info(tensor).axes),
                                     .is_output = is_output,
                                     .dtype = spec.dtype_if(tensor)};
    }
    return function;
}

ir::Function build(const Spec& spec) {
    if (spec.formula) return *function_of(spec);  // validate() has derived it before
    return spec.pass == Pass::forward ? forward(spec) : backward(spec);
}

}  // namespace normjit::frontend
