// SPDX-License-Identifier: Apache-2.0
//     xhat = x * rstd                           rstd saved, or recomputed from x: rstd = rsqrt(row_mean(x^2) + eps)
//     g    = dy * (gamma + gamma_offset)
//     c1   = row_mean(g * xhat)
//     dx   = rstd * (g - xhat * c1) + dresidual
//     dgamma = col_sum(dy * xhat)   dbeta = col_sum(dy), for layers that have a beta
#include "frontend/frontend.h"

namespace normjit::frontend {

ir::Function rmsnorm(const Spec& spec) {
    ir::Builder b(spec);
    const bool recompute = spec.stats == Stats::recompute && spec.source == Source::x;
    const ir::Expr x = b.input(Tensor::x);
    ir::Expr rstd;
    if (recompute) {
        rstd = b.name("rstd", rsqrt(b.name("mean_square", row_mean(x * x)) + spec.eps));
        write_asked(b, spec, Tensor::rstd, rstd);
    } else {
        rstd = b.input(Tensor::rstd);
    }
    const ir::Expr xhat = spec.source == Source::x ? b.name("xhat", x * rstd) : xhat_from_source(b, spec);
    const ir::Expr g = scaled_gradient(b, spec);
    const ir::Expr c1 = b.name("c1", row_mean(g * xhat));
    write_gradients(b, spec, rstd * (g - xhat * c1), xhat);
    return std::move(b).finish();
}

}  // namespace normjit::frontend
