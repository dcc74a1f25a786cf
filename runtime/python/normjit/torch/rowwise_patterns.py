# SPDX-License-Identifier: Apache-2.0
"""Element-wise operations of torch as patterns of formulas, in addition to those of graph_nodes."""
from __future__ import annotations

import functools
import math
from collections.abc import Set
from typing import Any

import torch

from normjit.torch import graph_nodes as nodes

Aten = torch.ops.aten

# exp(a) - 1 without its loss of digits, for a finite exp(a). Its gradient is exp(a), because that of the product would
# lose all digits where exp(a) is small.
EXPM1 = "(detach(tanh({0} * 0.5) * (exp({0}) + 1)) + (exp({0}) - detach(exp({0}))))"
PATTERNS = {Aten.mish.default: "{0} * tanh(softplus({0}))", Aten.sign.default: "compare({0}, 0)",
            Aten.threshold.default: "where(compare({0}, {1}), {0}, {2})",
            Aten.expm1.default: f"where({{0}} - 88, exp({{0}}), {EXPM1.format('where({0} - 88, 0, {0})')})", Aten.lerp.Tensor: "{0} + {2} * ({1} - {0})",
            Aten.lerp.Scalar: "{0} + {2} * ({1} - {0})", Aten.zeros_like.default: "like(0, {0})",
            Aten.ones_like.default: "like(1, {0})", Aten.full_like.default: "like({1}, {0})",
            # 0 where a is 0; the gradient is 0 as well if log(b) is infinite
            Aten.xlogy.Tensor: "{0} * log(where(where({1}, 0, 1 - abs(compare({0}, 0))), 1, {1}))",
            Aten.log2.default: f"log({{0}}) / {math.log(2)!r}",
            Aten.floor.default: "round({0}) - where(compare(round({0}), {0}), 1, 0)",
            Aten.ceil.default: "round({0}) + where(compare({0}, round({0})), 1, 0)",
            Aten.trunc.default: "round({0}) - where(compare(abs(round({0})), abs({0})), compare({0}, 0), 0)",
            Aten.log10.default: f"log({{0}}) / {math.log(10)!r}"}
HARD = "where(compare({2}, {0}), where(compare({0}, {1}), {0}, {1}), {2})"
# An element that is not below 0 must not take part in exp(a) - 1.
ELU = f"where({{0}}, {{0}} * {{2}}, {EXPM1.format('(where({0}, 0, {0}) * {3})')} * {{1}} * {{2}})"
BETWEEN = "where(compare(3, {0}), where(compare({0}, -3), {0}, 0), 0)"
FAR = "abs({0} - {1})"
NEAR = f"where(compare({{3}}, {FAR}), {FAR}, {{3}})"
PATTERNS.update({
    Aten.hardtanh.default: HARD, Aten.elu.default: ELU, Aten.celu.default: ELU.format("{0}", "{1}", "1", "(1 / {1})"),
    Aten.hardshrink.default: "where(compare(abs({0}), {1}), {0}, 0)",
    Aten.hardsigmoid.default: "where(compare(3, {0}), where(compare({0}, -3), ({0} + 3) / 6, 0), 1)",
    Aten.leaky_relu.default: "where({0}, {0}, {0} * {1})",
    # A number that is infinite, or gets no gradient, must not take part in a product.
    Aten.hardswish.default: f"where(compare(3, {{0}}), {BETWEEN} * (({BETWEEN} + 3) / 6), {{0}})",
    Aten.huber_loss.default: f"{NEAR} * {NEAR} * 0.5 + {{3}} * ({FAR} - {NEAR})",
    Aten.smooth_l1_loss.default: f"{NEAR} * {NEAR} * (0.5 / {{3}}) + ({FAR} - {NEAR})"})
WHOLE = {Aten.round.default, Aten.floor.default, Aten.ceil.default, Aten.trunc.default}
LOSSES = {Aten.huber_loss.default, Aten.smooth_l1_loss.default}
DEFAULTS = {Aten.hardtanh.default: (-1, 1), Aten.elu.default: (1, 1, 1), Aten.celu.default: (1,), Aten.hardshrink.default: (0.5,),
            Aten.leaky_relu.default: (0.01,), Aten.huber_loss.default: (None, 1, 1), Aten.smooth_l1_loss.default: (None, 1, 1),
            Aten.softplus.default: (1, 20)}  # the arguments after the first; None has no default
CLAMPS = {Aten.clamp_min.default: ("max",), Aten.clamp_max.default: ("min",), Aten.clamp.default: ("max", "min"),
          Aten.clamp_min.Tensor: ("max",), Aten.clamp_max.Tensor: ("min",), Aten.clamp.Tensor: ("max", "min")}
LOST = {torch.bool: " and compare them with < <= > >= == != only; what is true or false may be an argument of 1 and 0, to multiply with"}
# What must be greater than 0, given (a, b), where the comparison is true or, if it is negated, where it is false.
COMPARISONS = {getattr(getattr(Aten, name), kind): (order, is_negated) for kind in ("Scalar", "Tensor")
               for name, order, is_negated in (("gt", "{0}, {1}", False), ("lt", "{1}, {0}", False),
                                               ("ge", "{1}, {0}", True), ("le", "{0}, {1}", True))}
LOGIC = {Aten.bitwise_and.Tensor: "{0} * {1}", Aten.logical_and.default: "{0} * {1}", Aten.bitwise_or.Tensor: "max({0}, {1})",
         Aten.logical_or.default: "max({0}, {1})", Aten.bitwise_not.default: "1 - {0}", Aten.logical_not.default: "1 - {0}"}
EQUALITIES = {getattr(getattr(Aten, name), kind): text for kind in ("Scalar", "Tensor")
              for name, text in (("eq", "1 - abs(compare({0}, {1}))"), ("ne", "abs(compare({0}, {1}))"))}
CHOICES = {Aten.where.self: (0, 1, 2), Aten.where.ScalarOther: (0, 1, 2), Aten.where.ScalarSelf: (0, 1, 2), Aten.where.Scalar: (0, 1, 2),
           Aten.masked_fill.Scalar: (1, 2, 0), Aten.masked_fill.Tensor: (1, 2, 0)}  # the places of the condition, a and
                                                                                    # b
OTHERS = {Aten.gelu.default, Aten.pow.Tensor_Scalar, Aten.roll.default, Aten.softplus.default}  # they have their own
                                                                                                # code
BINARY = {**nodes.BINARY, Aten.rsub.Scalar: "-", Aten.rsub.Tensor: "-"}
SOFTMAX = {Aten._softmax.default: "{e} / row_sum({e})", Aten._log_softmax.default: "{a} - log(row_sum({e}))"}
REDUCTIONS = {Aten.mean.default, Aten.sum.default, Aten.var.correction, Aten.std.correction,
              Aten.linalg_vector_norm.default, Aten.logsumexp.default}  # in addition to graph_nodes.SUMS
WITH_NUMBERS = {Aten.addcmul.default: "{0} + {k} * {1} * {2}", Aten.addcdiv.default: "{0} + {k} * {1} / {2}"}
SEVERAL = {Aten.var_mean.correction, Aten.native_layer_norm.default, Aten.log_sigmoid_forward.default,
           Aten.aminmax.default}  # results


@functools.lru_cache(maxsize=None)
def allowed() -> str:
    """Returns the names of the operations that formulas have."""
    tables = (BINARY, SOFTMAX, REDUCTIONS, SEVERAL, PATTERNS, WITH_NUMBERS, OTHERS, CLAMPS, COMPARISONS, LOGIC, EQUALITIES, CHOICES,
              nodes.CALLS, nodes.PATTERNS, nodes.SUMS)
    return " ".join(sorted({str(target).split(".")[1].strip("_") for table in tables for target in table}))


def is_whole(node: Any, same: Set[Any]) -> bool:
    """True for numbers that are rounded to whole ones, and then only clamped to whole numbers. The operations in `same`
    do not change numbers."""
    while node.target in same or node.target in CLAMPS:
        if not all(each is None or isinstance(each, (int, float)) and float(each).is_integer() for each in node.args[1:]):
            return False
        node = node.args[0]
    return node.target in WHOLE
