# SPDX-License-Identifier: Apache-2.0
"""Finds the regions of a compiled graph that one formula can compute. A region is a row reduction and the nodes
connected with it."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from normjit.torch import graph_nodes as nodes
from normjit.torch.graph_nodes import COLUMN, FULL, PER_SLICE, ROW, SCALAR, Frame, Node, kind_of, value
from normjit.torch.graph_operator import TYPES

SUM = "sum of rows"  # the axes of a sum over rows: an [N] on which a formula can compute only casts and views
MOST_NODES = 400  # the most nodes in a region
MOST_FOLLOWERS = 120  # the most nodes outside a region that are considered for it
MOST_OPERANDS = 50  # the most operands that are added together with a node because only it uses them


class Region:
    """Nodes of a graph that one formula computes, with the axes of each value. No path leaves a region and returns to
    it."""

    def __init__(self, frame: Frame, order: dict[Node, int]) -> None:
        self.frame, self.order = frame, order
        self.axes: dict[Node, str] = {}
        self.inputs: dict[Node, str] = {}

    def __contains__(self, node: Node) -> bool:
        return node in self.axes

    def members(self) -> list[Node]:
        return sorted(self.axes, key=self.order.__getitem__)

    def grow(self, seed: Node) -> None:
        """Adds a row reduction and every node that can join it."""
        if self.add(seed):
            self._grow()
            for node in self._followers():
                if node not in self.axes and self._reads_what_is_here(node):
                    self._add_with_operands(node)

    def _grow(self) -> None:
        is_growing = True
        while is_growing and len(self.axes) < MOST_NODES:
            is_growing = False
            around = {each for node in self.axes for each in (*node.all_input_nodes, *node.users) if each not in self.axes}
            for node in sorted(around, key=self.order.__getitem__):
                if node not in self.axes and is_convex(self.axes, node, self.order):
                    is_growing |= self.add(node)

    def add(self, node: Node) -> bool:
        """Adds a node if a formula can express it. Returns whether it was added."""
        found = self._axes_of(node)
        if found is None:
            return False
        axes, inputs = found
        before = dict(self.axes), dict(self.inputs)
        self.axes[node] = axes
        self.inputs.pop(node, None)
        self.inputs.update(inputs)
        if value(node) is not None or all(is_convex(self.axes, each, self.order) and self.add(each) for each in node.users):
            return True
        self.axes, self.inputs = before  # its results belong to it
        return False

    def _followers(self) -> list[Node]:
        """Returns nodes outside that are computed from the region's matrices, through nodes that formulas can
        express."""
        sources = [*self.axes, *(node for node, axes in self.inputs.items() if axes == FULL)]
        waiting = dict.fromkeys(user for node in sources for user in node.users if user not in self.axes)
        queue = list(waiting)
        for node in queue:
            if len(queue) > MOST_FOLLOWERS:
                break
            if kind_of(node) in ("pointwise", "cast", "view"):
                more = [user for user in node.users if user not in self.axes and user not in waiting]
                waiting.update(dict.fromkeys(more))
                queue += more
        return sorted(waiting, key=self.order.__getitem__)

    def _reads_what_is_here(self, node: Node) -> bool:
        """True for a sum over rows that reads one of the region's matrices, and for a matrix that is computed only from
        these and must be written anyway, because its users cannot be fused with it."""
        kind = kind_of(node)
        made = value(node.args[0]) if kind == "sum" else value(node) if kind in ("pointwise", "cast") else None
        if made is None or not self.frame.is_full(made.shape) or (kind != "sum" and not self._is_written(node)):
            return False
        are_here = [self.inputs.get(each) == FULL or self.axes.get(each) == FULL for each in self._leaves(node)]
        return any(are_here) and (kind == "sum" or all(are_here))

    def _is_written(self, node: Node) -> bool:
        return all(self._is_written(user) if kind_of(user) == "view" else kind_of(user) is None for user in node.users)

    def _leaves(self, node: Node) -> list[Node]:
        """Returns the matrices from which a node is computed element by element: those that are in the region or its
        inputs already, or that no formula can compute."""
        return [each for each in self._cone(node) if not self._is_between(each)]

    def _cone(self, node: Node) -> list[Node]:
        seen: dict[Node, None] = {}
        waiting = list(node.all_input_nodes)
        for each in waiting:
            made = value(each)
            if each in seen or made is None or not self.frame.is_full(made.shape):
                continue
            seen[each] = None
            if len(seen) == MOST_OPERANDS:
                return []
            if self._is_between(each):
                waiting += each.all_input_nodes
        return list(seen)

    def _is_between(self, node: Node) -> bool:
        return node not in self.axes and node not in self.inputs and kind_of(node) in ("pointwise", "cast")

    def _add_with_operands(self, node: Node) -> None:
        """Adds a node and all operands that it needs, or nothing."""
        axes, inputs = dict(self.axes), dict(self.inputs)
        needed = [each for each in self._cone(node) if self._is_between(each)]
        for each in sorted([*needed, node], key=self.order.__getitem__):
            if not is_convex(self.axes, each, self.order) or not self.add(each):
                self.axes, self.inputs = axes, inputs
                return
        self._grow()

    def without(self, node: Node) -> Region:
        """Returns the region without a node at its edge, which has no user or no operand in it."""
        made = Region(self.frame, self.order)
        made.axes, made.inputs = dict(self.axes), dict(self.inputs)
        axes = made.axes.pop(node)
        if any(user in made.axes for user in node.users):
            made.inputs[node] = axes
        made.inputs = {each: kind for each, kind in made.inputs.items() if any(user in made.axes for user in each.users)}
        return made

    def removable(self) -> list[Node]:
        """Returns the nodes at the region's edges, each of which can be left out."""
        found = []
        for node in self.members():
            has_users = any(user in self.axes for user in node.users)
            has_operands = any(each in self.axes for each in node.all_input_nodes)
            belongs = kind_of(node) in ("statistics", "item") or (has_users and self.axes[node].endswith(SUM))
            if not belongs and not (has_users and has_operands):
                found.append(node)
        return found

    def parts_around(self, seed: Node) -> list[Region]:
        """Returns smaller and smaller parts of the region. The node farthest from `seed` is removed first."""
        distance, waiting = {seed: 0}, [seed]
        for node in waiting:
            for each in (*node.all_input_nodes, *node.users):
                if each in self.axes and each not in distance:
                    distance[each] = distance[node] + 1
                    waiting.append(each)
        parts: list[Region] = []
        part = self
        while True:
            at_edge = [node for node in part.removable() if node is not seed]
            if not at_edge:
                return parts
            part = part.without(max(at_edge, key=lambda node: distance.get(node, len(self.axes))))
            parts.append(part)

    def reductions(self) -> list[Node]:
        return [node for node in self.members() if is_row_reduction(node)]

    def _axes_of(self, node: Node) -> tuple[str, dict[Node, str]] | None:
        """Returns the axes of a node's value, and of its operands from outside; None if the node cannot be in the
        region."""
        kind, made = kind_of(node), value(node)
        if kind is None or (made is None and kind != "statistics"):
            return None
        if made is not None and (not self.frame.takes_type(made) or made.layout is not torch.strided):
            return None
        if kind == "item":
            return (ROW, {}) if node.args[0] in self.axes else None
        if kind in ("sum", "statistics"):
            return self._axes_of_sum(node)
        assert made is not None
        if kind == "view":
            return self._axes_of_view(node, made)
        return self._axes_of_elements(node, made)

    def _operand(self, node: Node, wanted: str) -> dict[Node, str] | None:
        """Returns {node: axes} for a node outside, {} for a node in the region; None if its axes are not the
        wanted ones."""
        if node in self.axes:
            return {} if self.axes[node] == wanted else None
        made = value(node)
        if made is None or not self.frame.takes_type(made) or self.inputs.get(node, wanted) != wanted:
            return None
        return {node: wanted}

    def _axes_of_sum(self, node: Node) -> tuple[str, dict[Node, str]] | None:
        source: Any = node.args[0]
        over, tensor = nodes.dimensions(node), value(source)
        if over is None or tensor is None or not self.frame.is_full(tensor.shape):
            return None
        inputs = self._operand(source, FULL)
        if inputs is None:
            return None
        last, split = tensor.dim() - 1, self.frame.split
        if over == [last]:
            return ROW, inputs
        if node.target is not nodes.Aten.sum.dim_IntList:
            return None
        if over == list(range(last)):
            return SUM, inputs
        if split and over == list(self.frame.parts(range(last + 1))[1]):
            return PER_SLICE + SUM, inputs
        return None

    def _axes_of_view(self, node: Node, made: torch.Tensor) -> tuple[str, dict[Node, str]] | None:
        """Accepts views of values that the region computes; views of inputs are inputs themselves, except those that
        repeat an element along the columns, which no kernel reads."""
        source: Any = node.args[0]
        axes, before = self.axes.get(source), value(source)
        if before is None:
            return None
        if axes is None:
            return self._axes_of_repeated(node, before, made)
        if axes == FULL:
            return (FULL, {}) if self.frame.is_full(made.shape) else None
        if axes == ROW:
            if node.target is nodes.Aten.expand.default and self.frame.is_full(made.shape):
                return (FULL, {}) if self.frame.beside(before.shape, made.shape) == ROW else None
            return (ROW, {}) if self.frame.is_row(made.shape) else None
        if axes in (COLUMN, SUM):
            return (axes, {}) if self.frame.is_column(made.shape) else None
        return (axes, {}) if axes.startswith(PER_SLICE) and self.frame.is_per_slice(made.shape) else None

    def _axes_of_repeated(self, node: Node, before: torch.Tensor, made: torch.Tensor) -> tuple[str, dict[Node, str]] | None:
        if node.target is not nodes.Aten.expand.default or not self.frame.is_full(made.shape):
            return None
        wanted = self.frame.beside(before.shape, made.shape)
        if wanted != ROW and (wanted != SCALAR or not self.frame.takes_scalar(before)):
            return None
        inputs = self._operand(node.args[0], wanted)  # type: ignore[arg-type]
        return None if inputs is None else (FULL, inputs)

    def _axes_of_elements(self, node: Node, made: torch.Tensor) -> tuple[str, dict[Node, str]] | None:
        given = [each for each in nodes.operands(node) if isinstance(each, Node)]
        numbers = [each for each in nodes.operands(node) if not isinstance(each, Node)]
        if not given or any(value(each) is None for each in given):
            return None
        if not all(isinstance(each, (int, float)) and math.isfinite(each) for each in numbers):
            return None
        inside = {self.axes[each] for each in given if each in self.axes}
        if any(axes.endswith(SUM) for axes in inside):
            return (inside.pop(), {}) if kind_of(node) == "cast" else None
        axes = FULL if self.frame.is_full(made.shape) else self._axes_beside(node, made, inside)
        if axes is None or (nodes.is_exchange(node) and axes != FULL):
            return None
        inputs: dict[Node, str] = {}
        for each in given:
            shape = value(each).shape  # type: ignore[union-attr]
            wanted = axes if nodes.same(shape, made.shape) else self.frame.beside(shape, made.shape) if axes == FULL else \
                SCALAR if nodes.is_one(shape) else None
            if wanted is None or (wanted == SCALAR and not self.frame.takes_scalar(value(each))):  # type: ignore[arg-type]
                return None
            found = self._operand(each, wanted)
            if found is None:
                return None
            inputs.update(found)
        return axes, inputs

    def _axes_beside(self, node: Node, made: torch.Tensor, inside: set[str]) -> str | None:
        """Returns the axes of a value that is not a matrix: the axes of its operands or users in the region."""
        known = inside | {self.inputs[node]} if node in self.inputs else inside
        if len(known) != 1:
            return None
        axes = next(iter(known))
        fits = {ROW: self.frame.is_row, COLUMN: self.frame.is_column, PER_SLICE: self.frame.is_per_slice}.get(axes)
        return axes if fits is not None and fits(made.shape) else None


def is_row_reduction(node: Node) -> bool:
    """True for a mean, sum, maximum or variance over the last dimension of a matrix that has more than one row."""
    if kind_of(node) not in ("sum", "statistics"):
        return False
    source = value(node.args[0])
    if source is None or source.dim() < 2 or nodes.dimensions(node) != [source.dim() - 1]:
        return False
    return source.dtype in TYPES and isinstance(source.shape[-1], int) and source.shape[-1] > 1


def is_convex(members: Iterable[Node], node: Node, order: dict[Node, int]) -> bool:
    """True if no path between `node` and the members passes through other nodes."""
    inside = members if isinstance(members, dict) else set(members)
    first, last = min(map(order.__getitem__, inside)), max(map(order.__getitem__, inside))
    return not (_reaches(node, inside, lambda n: n.all_input_nodes, lambda n: order[n] > first)
                or _reaches(node, inside, lambda n: n.users, lambda n: order[n] < last))


def _reaches(node: Node, inside: Any, following: Callable[[Node], Iterable[Node]], is_near: Callable[[Node], bool]) -> bool:
    """True if a path from a node to one of `inside` passes through other nodes."""
    waiting = [each for each in following(node) if each not in inside and is_near(each)]
    seen = set(waiting)
    while waiting:
        for each in following(waiting.pop()):
            if each in inside:
                return True
            if each not in seen and is_near(each):
                seen.add(each)
                waiting.append(each)
    return False
