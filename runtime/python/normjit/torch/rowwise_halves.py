# SPDX-License-Identifier: Apache-2.0
"""Halves of rows, with which rotations such as RoPE compute: the first and the second half, or the elements at even and
at odd places. Formulas have only whole rows, so half a row is written as a row that holds it twice: other numbers in
the second place could make gradients NaN. A rotation needs no such rows."""
from __future__ import annotations

from collections.abc import Mapping
from operator import getitem
from typing import Any, NamedTuple

import torch

Aten = torch.ops.aten


class Kind(NamedTuple):
    """A way to cut rows into halves."""

    axis: str  # the axis of half a row, among the axes of values
    signs: str  # the name of an input [N] of formulas: -1 at the places of the first half, 1 at those of the second
    exchange: str  # the function that returns the elements of the other half
    joined: str  # the axes of the row that results when two halves are joined

    def signs_like(self, tensor: torch.Tensor) -> torch.Tensor:
        columns = tensor.shape[-1]
        if self is PAIRS:
            return torch.arange(columns, dtype=torch.float32, device=tensor.device) % 2 * 2 - 1
        return torch.linspace(-1, 1, columns, dtype=torch.float32, device=tensor.device).sign()


HALVES = Kind("H", "signs_of_halves", "partner", "N")
PAIRS = Kind("P", "signs_of_pairs", "neighbour", "Q")  # the axes Q: [..., N / 2, 2] in torch
KINDS = (HALVES, PAIRS)
Cut = list[tuple[Kind, bool]]  # halves, and whether each is the second one
Shapes = Mapping[str, tuple[tuple[int, ...], ...]]


def shapes(axes: str, whole: tuple[int, ...]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Returns, by axes, the shapes that values with these axes have as halves and as pairs."""
    *rows, columns = whole
    halves = {axes.replace("N", kind.axis): ((*rows, columns // 2),) for kind in KINDS}
    return {**halves, axes.replace("N", PAIRS.joined): () if columns % 2 else ((*rows, columns // 2, 2),)}


def viewed(node: torch.fx.Node, axes: str, known: Shapes) -> str:
    """Returns the axes of a view of a value with these axes. The view may take rows as pairs, or pairs as rows."""
    other = axes.replace("N", "Q") if "N" in axes else axes.replace("Q", "N")
    return other if tuple(node.meta["val"].shape) in known.get(other, ()) else axes


class Half(NamedTuple):
    """The first or second half of a value's rows, times a sign."""

    of: torch.fx.Node
    kind: Kind
    is_second: bool
    sign: int = 1

    def text(self, a: str) -> str:
        """Returns the formula of a row that holds the half of `a` twice."""
        places = f"{a}, {self.kind.exchange}({a})" if self.is_second else f"{self.kind.exchange}({a}), {a}"
        return f"where({self.kind.signs}, {places})"


def is_last(dimension: Any, value: torch.Tensor) -> bool:
    return dimension in (-1, value.dim() - 1)


def taken(node: torch.fx.Node) -> list[Half]:
    """Returns the halves of rows that an operation of CUTS takes; an empty list if it takes other parts."""
    arguments: Any = node.args
    of, *given = arguments
    cut = CUTS[node.target]
    return [Half(of, kind, is_second) for kind, is_second in cut(of.meta["val"], *given)]


def _sliced(value: torch.Tensor, dim: int = 0, begin: Any = None, end: Any = None, step: int = 1) -> Cut:
    columns, kind = value.shape[-1], PAIRS if step == 2 else HALVES
    if columns % 2 or not is_last(dim, value):
        return []
    half = columns // 2
    places = [range(i, columns, 2) if kind is PAIRS else range(i * half, (i + 1) * half) for i in (0, 1)]
    return [(kind, bool(i)) for i in (0, 1) if range(columns)[begin:end:step] == places[i]]


def _split(value: torch.Tensor, sizes: Any, dim: int = 0) -> Cut:
    columns = value.shape[-1]
    is_in_two = columns % 2 == 0 and sizes in (columns // 2, [columns // 2] * 2)
    return [(HALVES, False), (HALVES, True)] if is_in_two and is_last(dim, value) else []


def _unbound(value: torch.Tensor, dim: int = 0) -> Cut:
    return [(PAIRS, False), (PAIRS, True)] if value.shape[-1] == 2 and is_last(dim, value) else []


def _selected(value: torch.Tensor, dim: int, place: int) -> Cut:
    pair = _unbound(value, dim)
    return [pair[place]] if pair else []


# The operations that take halves of rows of a value [..., N] or, for the last two, of a value [..., N / 2, 2].
CUTS: dict[Any, Any] = {Aten.slice.Tensor: _sliced, Aten.split.Tensor: _split, Aten.split_with_sizes.default: _split,
                        Aten.select.int: _selected, Aten.unbind.int: _unbound}
WHOLE = {target: "Q" if target in (Aten.select.int, Aten.unbind.int) else "N" for target in CUTS}
ALLOWED = "a row can be cut into its two halves only, over the last dimension, or into its elements at even and at odd places"
JOINS = {Aten.cat.default: HALVES, Aten.stack.default: PAIRS}
OPERATIONS = CUTS.keys() | JOINS


def _half(node: Any) -> Half | None:
    """Returns the Half that a node represents, or None."""
    if node.target is Aten.neg.default:
        found = _half(node.args[0])
        return found and found._replace(sign=-found.sign)
    cut, place = node.args if node.target is getitem else (node, 0)
    halves = taken(cut) if cut.target in CUTS else []
    return halves[place] if halves else None


def rotation(parts: Any) -> tuple[torch.fx.Node, str] | None:
    """If parts of rows are the second and the first half of a value, returns the value and the pattern of the whole."""
    first, second = (_half(each) for each in parts)
    if first is None or second is None or first.of is not second.of or (first.is_second, second.is_second) != (True, False):
        return None
    sign, kind = "-" if second.sign < 0 else "", first.kind
    return first.of, f"{sign}{kind.exchange}({{0}}){f' * {kind.signs}' if first.sign != second.sign else ' * 1'}"
