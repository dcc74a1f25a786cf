// SPDX-License-Identifier: Apache-2.0
//     mean = row_mean(h)   rstd = rsqrt(row_mean((h - mean)^2) + eps)   xhat = (h - mean) * rstd
#include "frontend/frontend.h"

namespace normjit::frontend {

Normalised layernorm(ir::Builder& b, const Spec& spec, ir::Expr h) {
    const ir::Expr mean = b.name("mean", row_mean(h));
    const ir::Expr centred = b.name("centred", h - mean);
    const ir::Expr rstd = b.name("rstd", rsqrt(b.name("variance", row_mean(centred * centred)) + spec.eps));
    return {.xhat = b.name("xhat", centred * rstd), .rstd = rstd, .mean = mean};
}

}  // namespace normjit::frontend
