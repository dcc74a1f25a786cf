# SPDX-License-Identifier: Apache-2.0
"""Classifies the nodes of a compiled graph for formulas: kinds of operations, and the axes of values."""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from normjit.torch import graph_operator
from normjit.torch.graph_operator import TYPES

Aten = torch.ops.aten
Node = torch.fx.Node

BINARY = {Aten.add.Tensor: "+", Aten.add.Scalar: "+", Aten.sub.Tensor: "-", Aten.sub.Scalar: "-",
          Aten.mul.Tensor: "*", Aten.mul.Scalar: "*", Aten.div.Tensor: "/", Aten.div.Scalar: "/"}
CALLS = {getattr(Aten, name).default: name for name in ("rsqrt", "sqrt", "exp", "exp2", "log", "log1p", "abs", "sigmoid",
                                                        "silu", "tanh", "erf", "round")}
CALLS |= {Aten.maximum.default: "max", Aten.minimum.default: "min"}
PATTERNS = {Aten.neg.default: "-{0}", Aten.reciprocal.default: "1 / {0}", Aten.rsub.Scalar: "{1} - {0}",
            Aten.rsub.Tensor: "{1} - {0}", Aten.relu.default: "max({0}, 0)", Aten.square.default: "{0} * {0}",
            Aten.addcmul.default: "{0} + {1} * {2}",
            Aten.clamp_min.default: "max({0}, {1})", Aten.clamp_max.default: "min({0}, {1})"}
POWERS = {-1: "1 / {0}", -0.5: "rsqrt({0})", 0.5: "sqrt({0})", 1: "{0} * 1", 2: "{0} * {0}", 3: "{0} * {0} * {0}",
          4: "{0} * {0} * ({0} * {0})"}
TURNS = {(-1.0, 1.0): "rotate_half({0})", (1.0, -1.0): "-rotate_half({0})", (1.0, 1.0): "partner({0})",
         (-1.0, -1.0): "-partner({0})"}  # by the signs of the lower and the upper half of the result
CASTS = (torch.ops.prims.convert_element_type.default, Aten._to_copy.default, Aten.clone.default)
VIEWS = (Aten.view.default, Aten.reshape.default, Aten._unsafe_view.default, Aten.unsqueeze.default,
         Aten.squeeze.dim, Aten.squeeze.dims, Aten.expand.default, Aten.alias.default)
SUMS = {Aten.mean.dim: "row_mean({0})", Aten.sum.dim_IntList: "row_sum({0})", Aten.amax.default: "row_max({0})",
        Aten.amin.default: "-row_max(-{0})"}
EXTREMES = (Aten.amax.default, Aten.amin.default)
LOOKED_FOR = (*EXTREMES, Aten.max.default, Aten.min.default)  # a backward pass looks for their results among their
                                                              # inputs
STATISTICS = (Aten.var_mean.correction, Aten.var.correction)
KINDS: dict[Any, str] = {**dict.fromkeys(CASTS, "cast"), **dict.fromkeys(VIEWS, "view"), **dict.fromkeys(SUMS, "sum"),
                         **dict.fromkeys(STATISTICS, "statistics")}
FULL, ROW, COLUMN, SCALAR = "M,N", "M", "N", ""
PER_SLICE, SHARED = "S,N", "shared"  # if there are slices: [S,N], and an [M,N] that all slices share


def turn(x: torch.Tensor, lower: float, upper: float) -> torch.Tensor:
    """Exchanges the halves of the last dimension and multiplies them by signs. The search for regions puts it in the
    place of the operations that compute this."""
    first, second = x.chunk(2, -1)
    return torch.cat([lower * second, upper * first], -1)


def value(node: Any) -> torch.Tensor | None:
    """Returns the fake tensor of a node, or None if it makes no tensor."""
    made = node.meta.get("val") if isinstance(node, Node) else None
    return made if isinstance(made, torch.Tensor) else None


def equal(size: Any, other: Any) -> bool:
    """True if sizes are known to be equal. If that is not known, it is not found out, because that would add a guard to
    the graph."""
    if isinstance(size, int) and isinstance(other, int):
        return size == other
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # imports sympy, which takes a second

    return bool(statically_known_true(size == other))


def same(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """True if sizes are known to be equal."""
    return len(sizes) == len(others) and all(map(equal, sizes, others))


def is_contiguous(tensor: torch.Tensor) -> bool:
    """True if a tensor is known to be contiguous."""
    expected: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if not equal(size, 1) and not equal(stride, expected):
            return False
        expected = expected * size
    return True


def is_one(shape: Sequence[Any]) -> bool:
    """True if a tensor of this shape is known to have one element."""
    return all(equal(size, 1) for size in shape)


def product(sizes: Sequence[Any]) -> Any:
    return math.prod(sizes)  # sizes may be symbols


def is_kind(node: Node, targets: Any) -> bool:
    return node.op == "call_function" and node.target in targets


def kind_of(node: Node) -> str | None:
    """Returns the kind of a node: "pointwise", "cast", "view", "sum", "statistics", "item" (one result of statistics),
    or None."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source = node.args[0]
        return "item" if isinstance(source, Node) and is_kind(source, STATISTICS) else None
    kind = KINDS.get(node.target)
    return kind if kind is not None or pattern_of(node) is None else "pointwise"


def is_looked_for(node: Node) -> bool:
    """True if a node is an extreme that the backward pass gets. The gradient of such a node goes to the elements that
    are equal to it, so the backward pass must find them, even if it computes them again."""
    waiting = [node] if is_kind(node, LOOKED_FOR) else []
    for each in waiting:  # views and casts are added to the list
        if any(user.op == "output" for user in each.users):
            return True
        waiting += [user for user in each.users if kind_of(user) in ("view", "cast")]
    return False


def is_computed_again(node: Node) -> bool:
    """True if a backward pass may compute a node again rather than save its value. Matrix products are saved."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return kind_of(node) == "item" or target is turn
    return kind_of(node) is not None or torch.Tag.pointwise in target.tags or target.is_view or target is Aten.cat.default


def pattern_of(node: Node) -> str | None:
    """Returns the pattern of a formula for an element-wise operation, or None."""
    target: Any = node.target
    alpha = node.kwargs.get("alpha", 1)
    if node.kwargs.keys() - {"alpha"} or not isinstance(alpha, (int, float)):
        return None
    if target is turn:
        return TURNS[node.args[1:]]  # type: ignore[index]
    if target is Aten.roll.default:
        return "partner({0})" if is_by_a_half(node) else None
    if target is Aten.pow.Tensor_Scalar:
        return POWERS.get(node.args[1]) if isinstance(node.args[1], (int, float)) else None
    return _pattern(target, alpha, len(node.args))


@functools.lru_cache(maxsize=1024)
def _pattern(target: Any, alpha: float, operands: int) -> str | None:
    """Returns the pattern of an operation on this number of operands, the last of which is multiplied by `alpha`."""
    if target in BINARY:
        factor = "" if alpha == 1 else f" * ({float(alpha)!r})"
        pattern: str | None = f"{{0}} {BINARY[target]} {{1}}{factor}"
    elif target in CALLS:
        pattern = f"{CALLS[target]}({', '.join(f'{{{i}}}' for i in range(operands))})"
    elif str(target) == "prims.fma.default":  # Inductor defines it when it needs it
        pattern = "{0} * {1} + {2}"
    else:
        pattern = PATTERNS.get(target)
    is_whole = pattern is not None and f"{{{operands - 1}}}" in pattern and f"{{{operands}}}" not in pattern
    return pattern if is_whole else None


def is_by_a_half(node: Node) -> bool:
    """True for a roll of rows by half their length."""
    source = value(node.args[0])
    if source is None or len(node.args) < 3:
        return False
    cols = source.shape[-1]
    if not isinstance(cols, int) or cols % 2:
        return False
    return bool(node.args[2] in ([-1], [source.dim() - 1]) and node.args[1] == [cols // 2])


def is_exchange(node: Node) -> bool:
    """True for an operation that takes elements from other columns."""
    return node.target in (Aten.roll.default, turn)


def operands(node: Node) -> list[Any]:
    """Returns the arguments that are values: tensors and numbers."""
    kind = kind_of(node)
    if kind == "pointwise" and node.target is not Aten.pow.Tensor_Scalar and not is_exchange(node):
        return list(node.args)
    return list(node.args[:1])


def dimensions(node: Node) -> list[int] | None:
    """Returns the dimensions over which a sum goes, counted from 0; None if it goes over all, or if they are not
    known."""
    source = value(node.args[0])
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if source is None or given is None or not isinstance(given, (int, list, tuple)):
        return None
    listed = [given] if isinstance(given, int) else list(given)
    return sorted(int(each) % max(source.dim(), 1) for each in listed) or None


@dataclass(frozen=True)
class Frame:
    """The rows and columns of a region. The first `split` dimensions, of `lead` elements, are slices; 0: there are no
    slices. With rows_first they are rows, and the dimensions from there to the columns are slices."""

    rows: Any
    cols: int
    dtype_is_wide: bool
    device: torch.device
    slices: Any = 1
    split: int = 0
    lead: Any = 1
    rows_first: bool = False

    @staticmethod
    def of(tensor: torch.Tensor, split: int = 0, rows_first: bool = False) -> Frame:
        lead = product(tensor.shape[:split])
        return Frame(product(tensor.shape[:-1]), int(tensor.shape[-1]), tensor.dtype == torch.float64, tensor.device,
                     product(tensor.shape[split:-1]) if rows_first else lead, split, lead, rows_first)

    def parts(self, dims: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Divides the sizes of a matrix, or other values for each dimension, into the slices' and the rows'."""
        return graph_operator.parts(dims, self.code)

    @property
    def code(self) -> int:
        """The number by which the operator knows how dimensions are divided."""
        return -self.split if self.rows_first else self.split

    def takes_type(self, tensor: torch.Tensor) -> bool:
        return tensor.dtype in TYPES and (tensor.dtype == torch.float64) == self.dtype_is_wide and \
            tensor.device == self.device

    def takes_scalar(self, tensor: torch.Tensor) -> bool:
        """True for the type of all arithmetic; formulas take no other scalars."""
        return tensor.dtype == (torch.float64 if self.dtype_is_wide else torch.float32)

    def is_full(self, shape: Sequence[Any]) -> bool:
        if len(shape) < 2 or not same(shape[-1:], (self.cols,)) or not same((product(shape[:-1]),), (self.rows,)):
            return False
        return not self.split or (len(shape) > self.split + 1 and same((product(shape[:self.split]),), (self.lead,)))

    def is_row(self, shape: Sequence[Any]) -> bool:
        if not same((product(shape),), (self.rows,)):
            return False
        return not self.split or (len(shape) > self.split and same((product(shape[:self.split]),), (self.lead,)))

    def is_per_slice(self, shape: Sequence[Any]) -> bool:
        if not self.split or len(shape) <= self.split or not same(shape[-1:], (self.cols,)):
            return False
        slices, rows = self.parts(shape)
        return same((product(slices),), (self.slices,)) and all(equal(size, 1) for size in rows)

    def is_column(self, shape: Sequence[Any]) -> bool:
        return len(shape) > 0 and same(shape[-1:], (self.cols,)) and all(equal(size, 1) for size in shape[:-1])

    def beside(self, shape: Sequence[Any], full: Sequence[Any]) -> str | None:
        """Returns the axes of an operand of this shape in an operation that makes a matrix."""
        if len(shape) > len(full):
            return None
        padded = (1,) * (len(full) - len(shape)) + tuple(shape)
        if same(padded, full):
            return FULL
        if same(padded, (*full[:-1], 1)):
            return ROW
        if is_one(shape):
            return SCALAR
        if self.is_column(padded):
            return COLUMN
        between = len(full) - 1 - self.split
        if self.split and same(padded, (*full[:self.split], *(1,) * between, full[-1])):
            return SHARED if self.rows_first else PER_SLICE
        if self.split and same(padded, (*(1,) * self.split, *full[self.split:])):
            return PER_SLICE if self.rows_first else SHARED
        return None


def hint(size: Any) -> int | None:
    """Returns the size of a dimension in the call for which the graph is compiled; None if it is not known."""
    if isinstance(size, int):
        return size
    known = size.node.hint
    return None if known is None or isinstance(known, torch.SymInt) else int(known)  # SymInt: of a nested tensor
