// SPDX-License-Identifier: Apache-2.0
//     xhat = (x - mean) * rstd                  mean, rstd saved, or recomputed from x in two passes:
//     g    = dy * (gamma + gamma_offset)            mean = row_mean(x)   rstd = rsqrt(row_mean((x - mean)^2) + eps)
//     c1   = row_mean(g * xhat)
//     c2   = row_mean(g)
//     dx   = rstd * (g - (xhat * c1 + c2)) + dresidual
//     dgamma = col_sum(dy * xhat)   dbeta = col_sum(dy)
#include "frontend/frontend.h"

namespace normjit::frontend {

ir::Function layernorm(const Spec& spec) {
    ir::Builder b(spec);
    const bool recompute = spec.stats == Stats::recompute && spec.source == Source::x;
    ir::Expr xhat, rstd;
    if (recompute) {
        const ir::Expr x = b.input(Tensor::x);
        const ir::Expr mean = b.name("mean", row_mean(x));
        const ir::Expr centred = b.name("centred", x - mean);
        rstd = b.name("rstd", rsqrt(b.name("variance", row_mean(centred * centred)) + spec.eps));
        write_asked(b, spec, Tensor::mean, mean);
        write_asked(b, spec, Tensor::rstd, rstd);
        xhat = b.name("xhat", centred * rstd);
    } else if (spec.source == Source::x) {
        const ir::Expr x = b.input(Tensor::x);
        const ir::Expr mean = b.input(Tensor::mean);
        rstd = b.input(Tensor::rstd);
        xhat = b.name("xhat", (x - mean) * rstd);
    } else {
        xhat = xhat_from_source(b, spec);
        rstd = b.input(Tensor::rstd);
    }
    const ir::Expr g = scaled_gradient(b, spec);
    const ir::Expr c1 = b.name("c1", row_mean(g * xhat));
    const ir::Expr c2 = b.name("c2", row_mean(g));
    // The second grouping takes an operation less. For one column dx must be exactly 0: there c2 is g, rounded, and an
    // FMA that takes g's product unrounded would leave the difference.
    const ir::Expr projected = spec.cols == 1 ? g - xhat * c1 - c2 : g - (xhat * c1 + c2);
    write_gradients(b, spec, rstd * projected, xhat);
    return std::move(b).finish();
}

}  // namespace normjit::frontend
