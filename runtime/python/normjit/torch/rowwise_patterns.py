# SPDX-License-Identifier: Apache-2.0
"""Element-wise operations of torch as patterns of formulas, in addition to those of graph_nodes."""
from __future__ import annotations

import math

import torch

Aten = torch.ops.aten

# exp(a) - 1 without its loss of digits, for a finite exp(a). The gradient is exp(a): that of the product would lose all
# digits where exp(a) is small.
EXPM1 = "(detach(tanh({0} * 0.5) * (exp({0}) + 1)) + (exp({0}) - detach(exp({0}))))"
PATTERNS = {Aten.mish.default: "{0} * tanh(softplus({0}))", Aten.sign.default: "compare({0}, 0)",
            Aten.threshold.default: "where(compare({0}, {1}), {0}, {2})",
            Aten.expm1.default: f"where({{0}} - 88, exp({{0}}), {EXPM1.format('where({0} - 88, 0, {0})')})", Aten.lerp.Tensor: "{0} + {2} * ({1} - {0})",
            Aten.lerp.Scalar: "{0} + {2} * ({1} - {0})", Aten.zeros_like.default: "like(0, {0})",
            Aten.ones_like.default: "like(1, {0})", Aten.full_like.default: "like({1}, {0})",
            # 0 where a is 0, and so is the gradient if log(b) is infinite
            Aten.xlogy.Tensor: "{0} * log(where(where({1}, 0, 1 - abs(compare({0}, 0))), 1, {1}))",
            Aten.exp2.default: f"exp({{0}} * {math.log(2)!r})", Aten.log2.default: f"log({{0}}) / {math.log(2)!r}",
            Aten.log10.default: f"log({{0}}) / {math.log(10)!r}", Aten.pow.Scalar: "exp({1} * log({0}))"}
HARD = "where(compare({2}, {0}), where(compare({0}, {1}), {0}, {1}), {2})"
# An element that is not below 0 must not take part in exp(a) - 1.
ELU = f"where({{0}}, {{0}} * {{2}}, {EXPM1.format('(where({0}, 0, {0}) * {3})')} * {{1}} * {{2}})"
PATTERNS.update({
    Aten.hardtanh.default: HARD, Aten.elu.default: ELU, Aten.celu.default: ELU.format("{0}", "{1}", "1", "(1 / {1})"),
    Aten.hardshrink.default: "where(compare(abs({0}), {1}), {0}, 0)",
    Aten.hardsigmoid.default: "where(compare(3, {0}), where(compare({0}, -3), ({0} + 3) / 6, 0), 1)",
    Aten.hardswish.default: "where(compare({0}, 3), {0}, where(compare(-3, {0}), 0, {0} * ({0} + 3) / 6))"})
DEFAULTS = {Aten.hardtanh.default: (-1, 1), Aten.elu.default: (1, 1, 1), Aten.celu.default: (1,), Aten.hardshrink.default: (0.5,),
            Aten.leaky_relu.default: (0.01,), Aten.softplus.default: (1, 20)}  # for the arguments after the first
