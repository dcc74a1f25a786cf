// SPDX-License-Identifier: Apache-2.0
// Both, h being what is normalised, the tensor x of a backward pass:
//     xhat = (h - mean) * rstd
// mean and rstd are saved, or computed in two passes:
//     mean = row_mean(h)   rstd = rsqrt(row_mean((h - mean)^2) + eps)
// Forward:
//     y    = xhat * (gamma + gamma_offset) + beta
// Backward:
//     g    = dy * (gamma + gamma_offset)
//     c1   = row_mean(g * xhat)
//     c2   = row_mean(g)
//     dh   = rstd * (g - (xhat * c1 + c2)) + dresidual      dx = dh * rowscale
//     dgamma = col_sum(dy * xhat)   dbeta = col_sum(dy)     amax = max_abs(dx)
#include "frontend/frontend.h"

namespace normjit::frontend {

namespace {

struct Normalised {
    ir::Expr xhat, rstd;
};

Normalised compute_statistics(ir::Builder& b, const Spec& spec) {
    const ir::Expr h = normalised(b, spec);
    const ir::Expr mean = b.name("mean", row_mean(h));
    const ir::Expr centred = b.name("centred", h - mean);
    const ir::Expr rstd = b.name("rstd", rsqrt(b.name("variance", row_mean(centred * centred)) + spec.eps));
    write_asked(b, spec, Tensor::mean, mean);
    write_asked(b, spec, Tensor::rstd, rstd);
    return {b.name("xhat", centred * rstd), rstd};
}

Normalised normalise(ir::Builder& b, const Spec& spec) {
    if (spec.source != Source::x) {
        const ir::Expr xhat = xhat_from_source(b, spec);
        return {xhat, b.input(Tensor::rstd)};
    }
    if (spec.stats == Stats::recompute) return compute_statistics(b, spec);
    const ir::Expr x = b.input(Tensor::x);
    const ir::Expr mean = b.input(Tensor::mean);
    const ir::Expr rstd = b.input(Tensor::rstd);
    return {b.name("xhat", (x - mean) * rstd), rstd};
}

}  // namespace

ir::Function layernorm(const Spec& spec) {
    ir::Builder b(spec);
    const auto [xhat, rstd] = normalise(b, spec);
    if (spec.pass == Pass::forward) {
        write_layer(b, spec, xhat);
        return std::move(b).finish();
    }
    const ir::Expr g = scaled_gradient(b, spec);
    const ir::Expr c1 = b.name("c1", row_mean(g * xhat));
    const ir::Expr c2 = b.name("c2", row_mean(g));
    // The second grouping saves an operation. With one column dx must be exactly 0: c2 is then g, rounded, and an FMA
    // that takes g's unrounded product would leave a difference.
    const ir::Expr projected = spec.cols == 1 ? g - xhat * c1 - c2 : g - (xhat * c1 + c2);
    write_gradients(b, spec, rstd * projected, xhat);
    return std::move(b).finish();
}

}  // namespace normjit::frontend
