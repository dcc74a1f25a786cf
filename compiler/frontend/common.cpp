// SPDX-License-Identifier: Apache-2.0
#include "frontend/frontend.h"

#include <string>

namespace normjit::frontend {

using ir::Builder;
using ir::Expr;

ir::Function build(const Spec& spec) { return spec.norm == Norm::layernorm ? layernorm(spec) : rmsnorm(spec); }

Expr normalised(Builder& b, const Spec& spec) {
    Expr h = b.input(Tensor::x);
    if (spec.pass == Pass::backward) return h;
    if (spec.has(Tensor::rowscale)) h = h * b.input(Tensor::rowscale);
    if (spec.has(Tensor::residual)) h = h + b.input(Tensor::residual);
    if (spec.has(Tensor::rowscale) || spec.has(Tensor::residual)) h = rounded(spec, spec.stream_type(), h);
    write_asked(b, spec, Tensor::h, h);
    return b.name("h", h);
}

Expr rounded(const Spec& spec, DType type, Expr value) {
    return spec.rounding == Rounding::none ? value : round_to(type, value);
}

namespace {

/// Returns the type in which a framework multiplies xhat with a tensor.
DType product_type(const Spec& spec, Tensor tensor) { return promoted(spec.stream_type(), spec.dtype(tensor)); }

}  // namespace

Expr scale(Builder& b, const Spec& spec) {
    const Expr gamma = b.input(Tensor::gamma);
    return spec.gamma_offset == 0 ? gamma : b.name("scale", gamma + spec.gamma_offset);
}

Expr scaled_gradient(Builder& b, const Spec& spec) {
    const Expr dy = b.input(Tensor::dy);
    if (!spec.has(Tensor::gamma)) return rounded(spec, spec.stream_type(), dy);
    return b.name("g", rounded(spec, spec.stream_type(), dy * scale(b, spec)));
}

Expr xhat_from_source(Builder& b, const Spec& spec) {
    const Expr source = b.input(Tensor::x);
    if (spec.source == Source::xhat) return source;
    const Expr shifted = spec.has(Tensor::beta) ? source - b.input(Tensor::beta) : source;
    return b.name("xhat", spec.has(Tensor::gamma) ? div_or_zero(shifted, scale(b, spec)) : shifted);
}

void write_asked(Builder& b, const Spec& spec, Tensor tensor, Expr value) {
    if (spec.writes(tensor)) b.output(tensor, value);
}

void write_column_sum(Builder& b, const Spec& spec, Tensor tensor, Expr value) {
    const Expr sum = col_sum(value);
    if (!spec.accumulates(tensor)) return b.output(tensor, sum);
    const std::string name(normjit::name(tensor));
    const Expr before = b.input(tensor);
    b.output(tensor, b.name(name + "_total", before + b.name(name + "_sum", sum)));
}

void write_layer(Builder& b, const Spec& spec, Expr xhat) {
    const Expr kept = rounded(spec, spec.stream_type(), xhat);
    const bool has_gamma = spec.has(Tensor::gamma);
    const Expr scaled = has_gamma ? rounded(spec, product_type(spec, Tensor::gamma), kept * scale(b, spec)) : kept;
    b.output(Tensor::y, spec.has(Tensor::beta) ? scaled + b.input(Tensor::beta) : scaled);
}

void write_gradients(Builder& b, const Spec& spec, Expr gradient, Expr xhat) {
    const Expr dy = b.input(Tensor::dy);
    const Expr dh = spec.has(Tensor::dresidual) ? gradient + b.input(Tensor::dresidual) : gradient;
    const Expr dx = spec.has(Tensor::rowscale) ? b.name("dh", dh) * b.input(Tensor::rowscale) : dh;
    b.output(Tensor::dx, dx);
    write_asked(b, spec, Tensor::dresidual_in, dh);
    const Expr kept = rounded(spec, spec.stream_type(), xhat);
    write_column_sum(b, spec, Tensor::dgamma, rounded(spec, product_type(spec, Tensor::dy), dy * kept));
    write_column_sum(b, spec, Tensor::dbeta, dy);
    if (spec.writes(Tensor::amax)) b.output(Tensor::amax, max_abs(dx));
}

}  // namespace normjit::frontend
