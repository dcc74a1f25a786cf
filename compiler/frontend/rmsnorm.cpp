// SPDX-License-Identifier: Apache-2.0
//     rstd = rsqrt(row_mean(h^2) + eps)   xhat = h * rstd
#include "frontend/frontend.h"

namespace normjit::frontend {

Normalised rmsnorm(ir::Builder& b, const Spec& spec, ir::Expr h) {
    const ir::Expr rstd = b.name("rstd", rsqrt(b.name("mean_square", row_mean(h * h)) + spec.eps));
    return {.xhat = b.name("xhat", h * rstd), .rstd = rstd, .mean = {}};
}

}  // namespace normjit::frontend
