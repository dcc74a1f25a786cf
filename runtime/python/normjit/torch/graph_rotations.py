# SPDX-License-Identifier: Apache-2.0
"""Rotations of rows by half their length, as in rotary embeddings. During the search for regions, each rotation is
one operation of the graph, graph_nodes.turn(), which formulas can express."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch

from normjit.torch.graph_nodes import Aten, Node, equal, turn, value
from normjit.torch.graph_operator import TYPES


class Half(NamedTuple):
    """The lower or upper half of the columns of a node's value, times a sign."""

    of: Node
    is_upper: bool
    sign: float


class Operation(NamedTuple):
    """A node of a graph, as it was before it was erased."""

    node: Node
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]


class Turned(NamedTuple):
    """A rotation that is written as one operation, the operations that it replaces, and the value that is rotated."""

    node: Node
    operations: list[Operation]
    of: Node


class Rotations:
    """The rotations of a graph."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.turned: list[Turned] = []

    def write(self) -> None:
        """Writes each rotation as one operation."""
        for node in list(self.graph.nodes):
            halves = _rotated(node)
            if halves is not None:
                self._replace(node, *halves)

    def restore(self, places: dict[Node, Node]) -> None:
        """Restores the rotations that no region took. `places` maps nodes to those that have replaced them since."""
        left = set(self.graph.nodes)
        for turned in self.turned:
            node = places.get(turned.node, turned.node)
            if node not in left:  # a region has taken it
                continue
            if node.users:
                with self.graph.inserting_before(node):
                    node.replace_all_uses_with(self._rewritten(turned, node.args[0]))
            self.graph.erase_node(node)

    def _rewritten(self, turned: Turned, of: Any) -> Node:
        made: dict[Node, Node] = {turned.of: of}
        for each in turned.operations:
            args, kwargs = torch.fx.node.map_arg((each.args, each.kwargs), lambda node: made.get(node, node))
            made[each.node] = self.graph.call_function(each.target, args, kwargs)
            made[each.node].meta.update(each.meta)
        return made[turned.operations[-1].node]

    def _replace(self, node: Node, lower: Half, upper: Half) -> None:
        with self.graph.inserting_before(node):
            turned = self.graph.call_function(turn, (lower.of, lower.sign, upper.sign))
        turned.meta["val"] = value(node)
        self.turned.append(Turned(turned, _operations(node, lower.of), lower.of))
        node.replace_all_uses_with(turned)
        _erase(self.graph, node, lower.of)


def _operations(node: Node, of: Node) -> list[Operation]:
    """Returns the operations that compute a node from another one, in order. Sizes that they read stay in the graph."""
    found: dict[Node, Operation] = {}

    def visit(each: Node) -> None:
        if each is not of and each not in found and value(each) is not None:
            for operand in each.all_input_nodes:
                visit(operand)
            found[each] = Operation(each, each.target, each.args, dict(each.kwargs), dict(each.meta))

    visit(node)
    return list(found.values())


def _rotated(node: Node) -> tuple[Half, Half] | None:
    """Returns the lower and the upper half of a value if they are the upper and the lower half of another value."""
    made = value(node)
    if made is None or made.dim() < 2 or made.dtype not in TYPES or not isinstance(made.shape[-1], int) or made.shape[-1] % 2:
        return None
    halves: Any = None
    parts = node.args[0] if node.target is Aten.cat.default and node.args else None
    if isinstance(parts, (list, tuple)) and len(parts) == 2:
        over = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if over in (-1, made.dim() - 1):
            halves = [_half(each) for each in parts]
    elif node.target is Aten.add.Tensor and not node.kwargs:
        placed = [_placed(each) for each in node.args]
        if None not in placed and {is_upper for is_upper, _ in placed} == {False, True}:  # type: ignore[misc]
            halves = [half for _, half in sorted(placed)]  # type: ignore[misc, type-var]
    if halves is None or None in halves:
        return None
    lower, upper = halves
    of = value(lower.of)
    if lower.of is not upper.of or not lower.is_upper or upper.is_upper or of is None or of.dtype != made.dtype:
        return None
    return (lower, upper) if len(of.shape) == len(made.shape) and all(map(equal, of.shape, made.shape)) else None


def _half(node: Any) -> Half | None:
    """Returns the half that a node takes of another node that only it uses; otherwise None."""
    if not isinstance(node, Node) or len(node.users) != 1:
        return None
    if node.target is Aten.neg.default:
        found = _half(node.args[0])
        return None if found is None else found._replace(sign=-found.sign)
    if node.target is not Aten.slice.Tensor or len(node.args) < 4 or len(node.args) > 4 and node.args[4] != 1:
        return None
    source, over, begin, end = node.args[:4]
    tensor = value(source)
    if tensor is None or over not in (-1, tensor.dim() - 1) or not isinstance(tensor.shape[-1], int):
        return None
    half = tensor.shape[-1] // 2
    if begin in (None, 0) and end == half:
        return Half(source, False, 1.0)  # type: ignore[arg-type]
    is_upper = begin == half and isinstance(end, int) and end >= tensor.shape[-1]
    return Half(source, True, 1.0) if is_upper else None  # type: ignore[arg-type]


def _placed(node: Any) -> tuple[bool, Half] | None:
    """If a node consists of zeros and a half of another node, returns whether that is its upper half, and the half."""
    if not isinstance(node, Node) or node.target is not Aten.slice_scatter.default or len(node.users) != 1:
        return None
    zeros, source, over, begin, end = (*node.args, *(None,) * 3)[:5]
    tensor, half = value(node), _half(source)
    if tensor is None or half is None or over not in (-1, tensor.dim() - 1) or not isinstance(zeros, Node):
        return None
    if zeros.target is not Aten.full.default or zeros.args[1] != 0 or not isinstance(tensor.shape[-1], int):
        return None
    middle = tensor.shape[-1] // 2
    if begin in (None, 0) and end == middle:
        return False, half
    is_upper = begin == middle and (end is None or isinstance(end, int) and end >= tensor.shape[-1])
    return (True, half) if is_upper else None


def _erase(graph: torch.fx.Graph, node: Node, until: Node) -> None:
    """Erases a node without users, and the tensors that only it used, as far back as the node `until`."""
    operands = [each for each in node.all_input_nodes if each is not until]
    graph.erase_node(node)
    for each in operands:
        if not each.users and each.op == "call_function" and value(each) is not None:
            _erase(graph, each, until)
