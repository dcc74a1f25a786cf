// SPDX-License-Identifier: Apache-2.0
//     xhat = h * rstd                           h: what is normalised, the tensor x of a backward pass. rstd saved, or
//                                               computed: rstd = rsqrt(row_mean(h^2) + eps)
// Forward:
//     y    = xhat * (gamma + gamma_offset) + beta, for layers that have a beta
// Backward:
//     g    = dy * (gamma + gamma_offset)
//     c1   = row_mean(g * xhat)
//     dh   = rstd * (g - xhat * c1) + dresidual             dx = dh * rowscale
//     dgamma = col_sum(dy * xhat)   dbeta = col_sum(dy), for layers that have a beta     amax = max_abs(dx)
#include "frontend/frontend.h"

namespace normjit::frontend {

ir::Function rmsnorm(const Spec& spec) {
    ir::Builder b(spec);
    const bool compute = spec.stats == Stats::recompute && spec.source == Source::x;
    const ir::Expr h = normalised(b, spec);
    ir::Expr rstd;
    if (compute) {
        rstd = b.name("rstd", rsqrt(b.name("mean_square", row_mean(h * h)) + spec.eps));
        write_asked(b, spec, Tensor::rstd, rstd);
    } else {
        rstd = b.input(Tensor::rstd);
    }
    const ir::Expr xhat = spec.source == Source::x ? b.name("xhat", h * rstd) : xhat_from_source(b, spec);
    if (spec.pass == Pass::forward) {
        write_layer(b, spec, xhat);
        return std::move(b).finish();
    }
    const ir::Expr g = scaled_gradient(b, spec);
    const ir::Expr c1 = b.name("c1", row_mean(g * xhat));
    write_gradients(b, spec, rstd * (g - xhat * c1), xhat);
    return std::move(b).finish();
}

}  // namespace normjit::frontend
