# SPDX-License-Identifier: Apache-2.0
"""Halves of rows, with which rotations such as RoPE compute. Formulas have whole rows only, so half a row is written as a row
that holds it twice: other numbers in its place could make gradients NaN. A rotation by half a row needs no such rows."""
from __future__ import annotations

from operator import getitem
from typing import Any, NamedTuple

import torch

Aten = torch.ops.aten
SIGNS = "signs_of_halves"  # an input of formulas, [N]: -1 in the first half of a row, 1 in the second
CUTS = {Aten.slice.Tensor, Aten.split.Tensor, Aten.split_with_sizes.default}
OPERATIONS = CUTS | {Aten.cat.default}


class Half(NamedTuple):
    """The first or second half of a value's rows, times a sign."""

    of: torch.fx.Node
    is_second: bool
    sign: int = 1

    def text(self, a: str) -> str:
        """Returns the formula of a row that holds the half of `a` twice."""
        return f"where({SIGNS}, {a}, partner({a}))" if self.is_second else f"where({SIGNS}, partner({a}), {a})"


def signs(like: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1, like.shape[-1], dtype=torch.float32, device=like.device).sign()


def is_over_columns(node: torch.fx.Node, place: int) -> bool:
    """True if an operation is over the last dimension, which is the argument at this place."""
    of: Any = node.all_input_nodes[0]
    return (node.args[place] if len(node.args) > place else 0) in (-1, of.meta["val"].dim() - 1)


def taken(node: torch.fx.Node) -> list[Half]:
    """Returns the halves of rows that an operation of CUTS takes; an empty list if it takes other parts."""
    arguments: Any = node.args
    of = arguments[0]
    columns, is_slice = of.meta["val"].shape[-1], node.target is Aten.slice.Tensor
    half = columns // 2
    if columns % 2 or not is_over_columns(node, 1 if is_slice else 2):
        return []
    if not is_slice:
        return [Half(of, False), Half(of, True)] if arguments[1] in (half, [half, half]) else []
    begin, end, step = (*arguments[2:], *(None,) * 3)[:3]
    cut = range(columns)[begin:end:step]
    return [Half(of, bool(i)) for i in (0, 1) if cut == range(i * half, (i + 1) * half)]


def _half(node: Any) -> Half | None:
    """Returns the half that a node is, or None."""
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
    return first.of, ("-" if second.sign < 0 else "") + "partner({0})" + (f" * {SIGNS}" if first.sign != second.sign else " * 1")
