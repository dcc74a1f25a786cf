# SPDX-License-Identifier: Apache-2.0
"""Writes the operations of a row-wise function as lines of a formula."""
from __future__ import annotations

import math
import re
from collections.abc import Mapping
from operator import getitem
from typing import Any

import torch

from normjit._library import InvalidArgument, counted
from normjit.torch import graph_nodes as nodes
from normjit.torch import rowwise_halves as halves
from normjit.torch import rowwise_patterns as patterns

Aten = torch.ops.aten
Shapes = Mapping[str, tuple[int, ...]]  # the shapes of tensors, by their axes
NOT_GIVEN = "a tensor of shape {} is not an argument of the function; pass tensors as arguments, and write numbers as Python numbers"


class Writer:
    """Writes the operations of a traced graph as lines of a formula. In torch, values of [M] have the shape [..., 1]
    or, without the last dimension, [...]. Half a row has the axis of halves.Kind."""

    SAME = {Aten._to_copy.default, Aten.clone.default, Aten.alias.default, Aten.lift_fresh_copy.default,
            Aten.detach.default}  # some versions of torch record detach; the check of gradients refuses it
    ROWS = {Aten.unsqueeze.default, Aten.squeeze.dim, Aten.squeeze.dims, Aten.view.default, Aten.expand.default}
    VIEWS = ROWS | {Aten.alias.default, Aten.detach.default} | halves.OPERATIONS

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = {**{axes: (shape,) for axes, shape in shapes.items()}, "M": (shapes["M"], shapes["M"][:-1]), "": ((), (1,))}
        for axes in ("M,N", "N"):
            self.shapes.update(halves.shapes(axes, shapes[axes]))
        self.kinds: dict[Any, str] = {}  # the axes with which a value is computed
        self.values: dict[Any, str] = {}  # result i of an operation with several results has the key (node, i)
        self.written: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        self.squares: set[str] = set()
        self.conditions: dict[Any, tuple[str, bool]] = {}  # what is greater than 0, and whether the condition is false
                                                           # in that case
        self.lines: list[str] = []

    def kind_of(self, node: torch.fx.Node) -> str:
        """Returns the axes of a result, which are those of its operands. In rows of one column, shapes cannot
        distinguish them."""
        target: Any = node.target
        if target is getitem:
            return self.kinds.get(node.args, self.kinds[node.all_input_nodes[0]])
        if target in nodes.SUMS or target in patterns.REDUCTIONS:
            return "M"
        found = {axis for each in node.all_input_nodes for axis in self.kinds[each].split(",")}
        kind = ",".join(axis for axis in "MNHPQ" if axis in found)
        if target is Aten.view.default:
            return halves.viewed(node, kind, self.shapes)
        whole = self.shapes["M,N"]
        is_repeated = target == Aten.expand.default and tuple(node.meta["val"].shape) in whole
        return "M,N" if is_repeated and (kind != "M" or whole[0] not in self.shapes["M"]) else kind

    def axes(self, node: Any) -> str | None:
        """Returns the axes of a value, or None if its shape is not that of such values."""
        kind = self.kinds[node]
        return kind if tuple(node.meta["val"].shape) in self.shapes.get(kind, ()) else None

    def refused(self, node: torch.fx.Node, why: str = "") -> InvalidArgument:
        made, why = node.meta.get("val"), why or f"is no operation of formulas; its result may be an argument. Allowed: {patterns.allowed()}"
        shape = f", of shape {tuple(made.shape)}" if isinstance(made, torch.Tensor) else ""
        return InvalidArgument(f"rowwise: {node.target}{shape}: {why}")

    def operand(self, value: Any, node: torch.fx.Node) -> str:
        if isinstance(value, torch.fx.Node):
            if value not in self.values:
                raise self.refused(value)
            return self.values[value]
        if isinstance(value, (int, float)) and not math.isnan(value):
            return f"({float(value)!r})" if value < 0 else repr(float(value))
        raise self.refused(node, f"{value!r} is not a number")

    def write(self, node: torch.fx.Node) -> None:
        value: Any = node.meta.get("val")
        if node.target in patterns.SEVERAL:
            self.write_several(node)
            return
        if node.target in halves.OPERATIONS:
            self.write_halves(node)
            return
        if node.target is getitem:
            self.values.update({node: self.values[node.args]} if node.args in self.values else {})
            return
        if node.target in patterns.COMPARISONS:
            self.write_comparison(node)
            return
        is_logic = node.target in patterns.LOGIC and all(each in self.conditions for each in node.args)
        if is_logic or node.target in patterns.EQUALITIES:
            pattern = {**patterns.LOGIC, **patterns.EQUALITIES}[node.target]
            self.values[node] = self.line(pattern.format(*[self.operand(each, node) for each in node.args]))
            self.conditions[node] = self.values[node], False
            return
        if node.op == "get_attr":
            raise InvalidArgument(f"rowwise: {NOT_GIVEN.format(() if value is None else tuple(value.shape))}")
        if not isinstance(value, torch.Tensor):
            is_extreme = node.target in (Aten.max.dim, Aten.min.dim)
            raise self.refused(node, *["its gradient goes to one of equal elements; use amax() or amin()"] * is_extreme)
        is_of_bytes = value.dtype == torch.int8 and node.target is Aten._to_copy.default
        if not value.dtype.is_floating_point and not is_of_bytes:
            raise self.refused(node, f"makes a tensor of {value.dtype}; formulas compute with floating-point numbers only"
                               f"{patterns.LOST.get(value.dtype, '')}")
        if self.axes(node) is None and value.dim() > 0:
            raise self.refused(node, "is not row-wise")
        if value.dtype.itemsize == 1 and any(user.op != "output" for user in node.users):
            raise self.refused(node, f"rounds to {value.dtype}, which formulas do for the result only")
        if is_of_bytes and not patterns.is_whole(node.args[0], self.SAME):
            self.values[node] = self.line(patterns.PATTERNS[Aten.trunc.default].format(self.operand(node.args[0], node)))
            return
        written_to = self.written_to(node)
        if node.target in self.SAME | {Aten.scalar_tensor.default}:
            self.values[node] = self.operand(node.args[0], node)
        else:
            self.values[node] = self.line(self.expression(node))
        self.values.update((each, self.values[node]) for each in written_to)

    def written_to(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """Replaces an operation in place by one that makes a new tensor. Returns the nodes of the tensor that was
        written to, which stand for the result from then on."""
        if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
            return []
        _, name, overload = str(node.target).split(".")
        source: Any = node.args[0]
        origin = source.args[0] if source.target is getitem else source
        is_view = origin.target in self.VIEWS or any(user.target in self.VIEWS for user in source.users)
        if not name.endswith("_") or source.op == "placeholder" or is_view:
            raise self.refused(node, "writes to an argument, a view, or a tensor that has one")
        node.target = getattr(getattr(Aten, name[:-1]), overload)
        self.written[node] = [source, *self.written.get(source, [])]
        return self.written[node]

    def expression(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        arguments: Any = node.args
        if target in patterns.BINARY:
            return self.combined(node)
        if target in nodes.SUMS or target in patterns.REDUCTIONS:
            return self.reduced(node)
        if target in patterns.SOFTMAX:
            self.check_rows(node, [arguments[1]], "a softmax")
            a = self.operand(arguments[0], node)
            a = self.line(f"{a} - detach(row_max({a}))")
            return patterns.SOFTMAX[target].format(a=a, e=self.line(f"exp({a})"))
        if target == Aten.roll.default:
            columns = node.meta["val"].shape[-1]
            over = list(arguments[2]) if len(arguments) > 2 else []
            is_last = over in ([-1], [node.meta["val"].dim() - 1])
            if not is_last or 2 * abs(arguments[1][0]) != columns or not self.kinds[node].endswith("N"):
                raise self.refused(node, "a row can be rolled by a half of it only, over the last dimension")
            return f"partner({self.operand(arguments[0], node)})"
        if target in self.ROWS:
            return self.of_rows(node)
        if target in patterns.CHOICES:
            return self.chosen(node)
        return self.of_elements(node)

    def write_halves(self, node: torch.fx.Node) -> None:
        """Writes an operation that cuts rows into halves, or joins two halves."""
        source: Any = node.args[0]
        if node.target in halves.JOINS:
            kind, dim = halves.JOINS[node.target], (*node.args, 0)[1]
            fit = len(source) == 2 and all(self.kinds[each].endswith(kind.axis) for each in source)
            if not fit or not halves.is_last(dim, node.meta["val"]):
                raise self.refused(node, "two halves of rows can be joined only, over the last dimension")
            of, pattern = halves.rotation(source) or (None, f"where({kind.signs}, {{1}}, {{0}})")
            self.values[node] = self.line(pattern.format(*[self.operand(each, node) for each in ([of] if of else source)]))
            self.kinds[node] = self.kinds[node].replace(kind.axis, kind.joined)
            return
        a, axes = self.operand(source, node), self.kinds[source]
        is_of_one, whole = isinstance(node.meta["val"], torch.Tensor), halves.WHOLE[node.target]
        if is_of_one and node.meta["val"].shape == source.meta["val"].shape:
            self.values[node] = a
            return
        taken = halves.taken(node) if axes.endswith(whole) else []
        if not taken:
            raise self.refused(node, halves.ALLOWED)
        for i, half in enumerate(taken):
            key = node if is_of_one else (node, i)
            self.values[key], self.kinds[key] = self.line(half.text(a)), axes.replace(whole, half.kind.axis)

    def write_comparison(self, node: torch.fx.Node) -> None:
        """Writes 1 where the comparison is true, and 0 elsewhere."""
        target: Any = node.target
        order, is_negated = patterns.COMPARISONS[target]
        text = self.line(f"compare({order.format(*[self.operand(each, node) for each in node.args])})")
        self.conditions[node] = text, is_negated
        self.values[node] = self.line(f"where({text}, {'0, 1' if is_negated else '1, 0'})")

    def chosen(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        condition, *places = patterns.CHOICES[target]
        if node.args[condition] not in self.conditions:
            raise self.refused(node, "its condition must be a comparison, or several with & | ~")
        text, is_negated = self.conditions[node.args[condition]]
        a, b = (self.operand(node.args[place], node) for place in places)
        return f"where({text}, {b}, {a})" if is_negated else f"where({text}, {a}, {b})"

    def combined(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        left, right = (self.operand(each, node) for each in node.args[:2])
        if target in (Aten.rsub.Scalar, Aten.rsub.Tensor):
            left, right = right, left
        alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
        if alpha != 1:
            right = f"{right} * {self.operand(alpha, node)}"
        return f"{left} {patterns.BINARY[target]} {right}"

    def of_elements(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        arguments: Any = (*node.args, *patterns.DEFAULTS.get(target, ())[len(node.args) - 1:])
        if target == Aten.gelu.default:
            name = "gelu_tanh" if node.kwargs.get("approximate", "none") == "tanh" else "gelu"
            return f"{name}({self.operand(arguments[0], node)})"
        if target == Aten.softplus.default:
            a, beta, most = (self.operand(each, node) for each in arguments)
            return f"where(compare({a} * {beta}, {most}), {a}, softplus({a} * {beta}) / {beta})"
        if target is Aten.pow.Scalar:
            if not arguments[0] > 0:
                raise self.refused(node, f"a power of {arguments[0]!r}; allowed: powers of numbers above 0")
            return f"exp2({self.operand(arguments[1], node)} * {self.operand(math.log2(arguments[0]), node)})"
        if target in patterns.LOSSES and arguments[2] != 0:
            raise self.refused(node, "is of all rows; allowed: reduction=\"none\"")
        if target is Aten.relu.default:
            return f"relu({self.operand(arguments[0], node)})"
        if target in patterns.CLAMPS:
            return self.clamped(node)
        if target in patterns.WITH_NUMBERS:
            operands = [self.operand(each, node) for each in arguments]
            return patterns.WITH_NUMBERS[target].format(*operands, k=self.operand(node.kwargs.get("value", 1), node))
        pattern = patterns.PATTERNS.get(target) or nodes.pattern_of(node)
        if pattern is None and target is Aten.pow.Tensor_Scalar:
            pattern = f"{{0}} ^ {self.operand(arguments[1], node)}"
        if pattern is None:
            raise self.refused(node)
        count = 1 if target is Aten.pow.Tensor_Scalar else len(arguments)
        return pattern.format(*[self.operand(each, node) for each in arguments[:count]])

    def clamped(self, node: torch.fx.Node) -> str:
        text = self.operand(node.args[0], node)
        bounds = list(zip(patterns.CLAMPS[node.target], node.args[1:]))  # type: ignore[index]
        if text in self.squares:
            bound = self.operand(bounds.pop(0)[1], node)
            text = f"sqrt(max({text}, {bound} * {bound}))"
        for function, each in bounds:
            if isinstance(each, torch.fx.Node):
                text = self.line(f"{function}({text}, {self.operand(each, node)})")
            elif each is not None:  # an element that equals the bound has no gradient, as in torch since 2.15
                bound = self.operand(each, node)
                order = f"{text}, {bound}" if function == "max" else f"{bound}, {text}"
                text = self.line(f"where(compare({order}), {text}, {bound})")
        return f"{text} * 1"

    def is_wide(self, node: torch.fx.Node) -> bool:
        return bool(node.meta["val"].dtype == torch.float64)

    def check_rows(self, node: torch.fx.Node, over: Any, what: str) -> None:
        source: Any = node.args[0]
        if list(over or []) not in ([-1], [source.meta["val"].dim() - 1]):
            raise self.refused(node, f"{what} must be over the last dimension")
        if self.axes(source) != "M,N":
            raise self.refused(node, f"{what} must be of values with x's shape")

    def reduced(self, node: torch.fx.Node) -> str:
        """Writes an operation that reduces rows to one value each."""
        target: Any = node.target
        a = self.operand(node.args[0], node)
        over = node.args[2 if target == Aten.linalg_vector_norm.default else 1] if len(node.args) > 1 else None
        self.check_rows(node, over, "a mean, sum, maximum or norm")
        if target in nodes.SUMS:
            return nodes.SUMS[target].format(a)
        if target == Aten.logsumexp.default:
            most = self.line(f"detach(row_max({a}))")
            most = self.line(f"where(-compare(abs({most}), inf), {most}, 0)")  # inf - inf would be NaN
            return f"{most} + log(row_sum(exp({a} - {most})))"
        if target == Aten.linalg_vector_norm.default:
            order: Any = node.args[1]
            if not order >= 1:
                raise self.refused(node, f"a norm of order {order}; allowed: numbers from 1 on, inf")
            if order not in (1, 2, math.inf):
                return self.norm(a, order)
            return self.root(f"row_sum({a} * {a})", node) if order == 2 else \
                f"{'row_sum' if order == 1 else 'row_max'}(abs({a}))"
        variance = self.variance(node, a)[0]
        return self.root(variance + " * 1", node) if target == Aten.std.correction else variance + " * 1"

    def norm(self, a: str, order: float) -> str:
        """Writes a row's norm. Powers are taken of quotients by the largest element, so that they do not overflow."""
        most = self.line(f"detach(row_max(abs({a})))")
        most = self.line(f"where(compare(inf, {most}), where({most}, {most}, 1), 1)")
        powers = self.line(f"row_sum(abs({a} / {most}) ^ {order!r})")
        return f"where({powers}, where({powers}, {powers}, 1) ^ {1 / order!r}, 0) * {most}"  # the gradient of 0 is 0,
                                                                                             # as in torch

    def root(self, a: str, node: torch.fx.Node) -> str:
        """Writes a row's norm or standard deviation, given its square. If the value is only clamped from below, clamps
        the square to the square of the bound instead, and takes the root after that."""
        waiting = list(node.users)
        for user in waiting:
            if user.target in self.SAME:
                waiting.extend(user.users)
            elif not self.is_clamp_from_below(user):
                return f"sqrt_or_zero({a})"  # its gradient at 0 is 0, as in torch
        self.squares.add(f"v{len(self.lines)}")
        return a

    def is_clamp_from_below(self, node: torch.fx.Node) -> bool:
        """True if a node clamps from below, possibly in place, to a number whose square is not 0 in the type of the
        computation."""
        name = str(node.target).split(".")[1].rstrip("_") if isinstance(node.target, torch._ops.OpOverload) else ""
        bound: Any = node.args[1] if name in ("clamp_min", "clamp") else None
        if isinstance(bound, torch.fx.Node) and bound.target is Aten.scalar_tensor.default:
            bound = bound.args[0]
        if not isinstance(bound, (int, float)):
            return False
        least = torch.finfo(torch.float64 if self.is_wide(node) else torch.float32).tiny
        return bound > 0 and bound * bound >= least

    def centred(self, a: str) -> tuple[str, str]:
        """Writes and returns the values minus their row's mean, and the mean."""
        mean = self.line(f"row_mean({a})")
        return self.line(f"{a} - {mean}"), mean

    def variance(self, node: torch.fx.Node, a: str) -> tuple[str, str]:
        """Writes the centred values, and returns the variance and the mean."""
        columns = self.shapes["M,N"][0][-1]
        centred, mean = self.centred(a)
        correction: Any = node.kwargs.get("correction", 1)
        correction = 1 if correction is None else correction
        if correction >= columns:
            raise self.refused(node, f"a variance of {counted(columns, 'column')} with the correction {correction}")
        scale = "" if correction == 0 else f" * {columns / (columns - correction)!r}"
        return self.line(f"row_mean({centred} * {centred}){scale}"), mean

    def write_several(self, node: torch.fx.Node) -> None:
        """Writes operations with several results."""
        arguments: Any = node.args
        a = self.operand(arguments[0], node)
        if node.target is Aten.log_sigmoid_forward.default:
            self.values[node, 0] = self.line(f"-softplus(-{a})")
            return
        if node.target is Aten.aminmax.default:
            self.check_rows(node, [node.kwargs.get("dim")], "an extreme")
            self.values[node, 0], self.values[node, 1] = self.line(f"row_min({a})"), self.line(f"row_max({a})")
            self.kinds[node, 0] = self.kinds[node, 1] = "M"
            return
        if node.target is Aten.var_mean.correction:
            self.check_rows(node, arguments[1] if len(arguments) > 1 else None, "a variance")
            for i, name in enumerate(self.variance(node, a)):
                self.values[node, i], self.kinds[node, i] = name, "M"
            return
        source, over, weight, bias, eps = arguments
        if list(over) != [source.meta["val"].shape[-1]] or self.axes(source) != "M,N":
            raise self.refused(node, "a norm must be over the last dimension")
        centred, mean = self.centred(a)
        rstd = self.line(f"rsqrt(row_mean({centred} * {centred}) + {self.operand(eps, node)})")
        factor = "" if weight is None else f" * {self.operand(weight, node)}"
        addend = "" if bias is None else f" + {self.operand(bias, node)}"
        for i, text in enumerate((f"{centred} * {rstd}{factor}{addend}", mean, rstd)):
            self.values[node, i], self.kinds[node, i] = self.line(text), "M" if i else "M,N"

    def of_rows(self, node: torch.fx.Node) -> str:
        """Writes an operation that adds or removes a dimension of 1, or repeats values over all rows or columns."""
        source: Any = node.args[0]
        given, made = self.axes(source), self.axes(node)
        a = self.operand(source, node)
        if given == made or node.target is Aten.view.default and None not in (given, made):
            return f"{a} * 1"
        if given in ("M", "N", "") and made == "M,N" and node.target == Aten.expand.default:
            return f"like({a}, {self.matrix})"
        raise self.refused(node, "is not row-wise")

    @property
    def matrix(self) -> str:
        """Returns the name of the first input, which is a matrix."""
        return next(iter(self.values.values()))

    def needed_for(self, results: list[str]) -> tuple[list[str], set[str]]:
        """Returns the lines that compute the results, whose own lines come last, and the names in them."""
        lines, used = list(results), set(re.findall(r"\w+", " ".join(results)))
        for line in reversed(self.lines):
            if line.partition(" ")[0] in used:
                lines.insert(0, line)
                used.update(re.findall(r"\w+", line))
        return lines, used

    def line(self, text: str) -> str:
        """Writes a value, and returns its name."""
        self.lines.append(f"v{len(self.lines)} = {text}")
        return f"v{len(self.lines) - 1}"
