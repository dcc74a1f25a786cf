# SPDX-License-Identifier: Apache-2.0
"""Permutations of dimensions between a norm and the element-wise operations around it, as where attention exchanges
tokens and heads before it rotates queries. A region has one order of dimensions, that of its norm. So these operations
are computed in this order, and the permutation, which is only a view, moves to the other side of them."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from normjit.torch import graph_nodes as nodes, graph_operator
from normjit.torch.graph_nodes import Aten, Node, kind_of, value
from normjit.torch.graph_regions import is_row_reduction

MOST_BETWEEN = 60  # the most operations between a permutation and a row reduction


def write(graph: torch.fx.Graph) -> dict[Node, Node]:
    """Moves permutations that follow or precede a norm. Returns the operations that are computed in another order now,
    by those whose place they took."""
    replaced: dict[Node, Node] = {}
    norms = [tuple(value(node.args[0]).shape) for node in graph.nodes if is_row_reduction(node)]  # type: ignore[union-attr]
    after = {node: _moves(node) for node in graph.nodes if _is_permutation(node)}
    before = dict(after)
    after = {node: dims for node, dims in after.items() if _meets_a_norm(node.args[0], lambda each: each.all_input_nodes)}
    before = {node: dims for node, dims in before.items() if node not in after and _meets_a_norm(node, lambda each: each.users)}
    if after:
        replaced.update(_Sunk(graph, after).run())
    if before:
        replaced.update(_Raised(graph, before).run())
    spread: dict[tuple[Node, str], Node] = {}
    for node in list(graph.nodes):
        made = value(node)
        if made is not None and kind_of(node) == "pointwise" and any(nodes.same(made.shape, shape) for shape in norms):
            _spread_operands(graph, node, made, spread)
    return replaced


def _is_permutation(node: Node) -> bool:
    """True for a permutation that keeps the last dimension where it is."""
    made = value(node)
    if node.target is not Aten.permute.default or made is None or made.dim() < 3 or made.dtype not in graph_operator.TYPES:
        return False
    return _moves(node)[-1] == made.dim() - 1 and isinstance(made.shape[-1], int)


def _moves(node: Node) -> list[int]:
    made = value(node)
    assert made is not None
    return [each % made.dim() for each in node.args[1]]  # type: ignore[union-attr, operator]


def _inverse(dims: list[int]) -> list[int]:
    return sorted(range(len(dims)), key=dims.__getitem__)


def _meets_a_norm(start: Any, following: Callable[[Node], Iterable[Node]]) -> bool:
    """True if element-wise operations lead from a node to a row reduction of a matrix with the same dimensions."""
    made = value(start)
    if made is None:
        return False
    waiting, seen = [start], {start}
    for node in waiting:
        for each in following(node):
            if each in seen or len(seen) > MOST_BETWEEN:
                continue
            seen.add(each)
            if is_row_reduction(each) and nodes.same(value(each.args[0]).shape, made.shape):  # type: ignore[union-attr]
                return True
            if kind_of(each) in ("pointwise", "cast", "view") and _dims(each) == made.dim():
                waiting.append(each)
    return False


def _dims(node: Node) -> int:
    made = value(node)
    return -1 if made is None else made.dim()


class _Moved:
    """Operations of a graph that are computed in another order of dimensions. They are visited in the graph's order, so
    that later ones can use what was made for earlier ones."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.replaced: dict[Node, Node] = {}
        self.operands: dict[tuple[Node, tuple[int, ...]], Node] = {}

    def permuted(self, node: Node, dims: list[int]) -> Node:
        """Returns a node in another order of its dimensions."""
        made = value(node)
        assert made is not None
        if node.target is Aten.permute.default and [_moves(node)[each] for each in dims] == list(range(made.dim())):
            return node.args[0]  # type: ignore[return-value]
        return self.call(Aten.permute.default, (node, dims), made.permute(dims))

    def call(self, target: Any, args: tuple[Any, ...], made: torch.Tensor, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = made
        return node

    def operand(self, node: Node, dims: list[int], full: list[Any]) -> Node:
        """Returns an operand of a moved operation in the order of its result, whose sizes are `full`. A matrix that no
        kernel can read in this order is copied, which Inductor does where it is computed."""
        made, key = value(node), (node, tuple(dims))
        assert made is not None
        if made.dim() < 2:
            return node
        if key not in self.operands:
            found = self.permuted(node, dims)
            tensor = value(found)
            assert tensor is not None
            if nodes.same(tensor.shape, full) and not _has_rows(tensor):
                found = self.call(Aten.clone.default, (found,), tensor.new_empty(full), memory_format=torch.contiguous_format)
            self.operands[key] = found
        return self.operands[key]

    def again(self, node: Node, dims: list[int], found: Callable[[Node], Node]) -> Node:
        """Returns an operation, computed in the order of dimensions `dims` of its present result."""
        made = value(node)
        assert made is not None
        full = [made.shape[each] for each in dims]

        def operand(each: Node) -> Node:
            known = found(each)
            return self.operand(each, dims, full) if known is each else known

        args = torch.fx.node.map_arg(node.args, operand)
        again = self.graph.call_function(node.target, args, node.kwargs)  # type: ignore[arg-type]
        again.meta.update(node.meta)
        again.meta["val"] = made.new_empty(full)
        self.replaced[node] = again
        return again


def _has_rows(tensor: torch.Tensor) -> bool:
    """True if one stride describes all dimensions before some dimension, and another one those from there on."""
    sizes, strides = tensor.shape[:-1], tensor.stride()[:-1]
    return any(all(graph_operator.collapsed(sizes[part], strides[part], 1, nodes.equal) is not None
                   for part in (slice(0, i), slice(i, None))) for i in range(len(sizes)))


def _is_movable(node: Node, of: torch.Tensor) -> bool:
    """True for an element-wise operation of matrices with these dimensions."""
    made, is_copy = value(node), node.target is Aten.clone.default
    if made is None or is_copy or kind_of(node) not in ("pointwise", "cast") or made.dtype not in graph_operator.TYPES:
        return False
    fits = (each.dim() < 2 or each.dim() == made.dim() for each in map(value, node.all_input_nodes) if each is not None)
    return nodes.same(made.shape, of.shape) and all(fits)


class _Sunk(_Moved):
    """Permutations after a norm move behind the operations that read them."""

    def __init__(self, graph: torch.fx.Graph, starts: dict[Node, list[int]]) -> None:
        super().__init__(graph)
        self.moved = dict(starts)  # permutations of what is in the norm's order

    def run(self) -> dict[Node, Node]:
        for node in list(self.graph.nodes):
            from_norm = [each for each in node.all_input_nodes if each in self.moved]
            if not from_norm or not _is_movable(node, value(from_norm[0])):  # type: ignore[arg-type]
                continue
            dims = self.moved[from_norm[0]]
            with self.graph.inserting_before(node):
                again = self.again(node, _inverse(dims), lambda each: self._source(each, dims))
                made = value(again)
                assert made is not None
                moved = self.call(Aten.permute.default, (again, dims), made.permute(dims))
            self.moved[moved] = dims
            node.replace_all_uses_with(moved)
            self.graph.erase_node(node)
        for node in reversed(list(self.moved)):
            if not node.users:
                self.graph.erase_node(node)
        return self.replaced

    def _source(self, node: Node, dims: list[int]) -> Node:
        return node.args[0] if self.moved.get(node) == dims else node  # type: ignore[return-value]


class _Raised(_Moved):
    """Permutations before a norm move in front of the operations that they read."""

    def __init__(self, graph: torch.fx.Graph, starts: dict[Node, list[int]]) -> None:
        super().__init__(graph)
        self.starts = starts

    def run(self) -> dict[Node, Node]:
        wanted: dict[Node, list[int]] = {}
        for start, dims in self.starts.items():
            self._want(start.args[0], dims, wanted)  # type: ignore[arg-type]
        for node in [each for each in self.graph.nodes if each in wanted]:
            dims = wanted[node]
            with self.graph.inserting_before(node):
                self.again(node, dims, lambda each: self.replaced[each] if wanted.get(each) == dims else each)
        for node, again in reversed(self.replaced.items()):
            dims = wanted[node]
            for user in [each for each in node.users if _is_permutation(each) and _moves(each) == dims]:
                user.replace_all_uses_with(again)
                self.graph.erase_node(user)
            if node.users:
                with self.graph.inserting_after(again):
                    node.replace_all_uses_with(self.permuted(again, _inverse(dims)))
            self.graph.erase_node(node)
        return self.replaced

    def _want(self, start: Node, dims: list[int], wanted: dict[Node, list[int]]) -> None:
        of, waiting = value(start), [start]
        assert of is not None
        for node in waiting:
            if node not in wanted and _is_movable(node, of):
                wanted[node] = dims
                waiting += node.all_input_nodes


def _spread_operands(graph: torch.fx.Graph, node: Node, made: torch.Tensor, spread: dict[tuple[Node, str], Node]) -> None:
    """Repeats an operand that is the same for some rows, such as the angles of tokens for each element of a batch, so
    that one stride describes its rows. Inductor writes it in the kernel that computes it. What is the same for the
    dimensions behind, such as heads, stays so."""
    for each in node.all_input_nodes:
        tensor = value(each)
        if tensor is None or tensor.dim() != made.dim() or not nodes.equal(tensor.shape[-1], made.shape[-1]):
            continue
        varying = [i for i in range(made.dim() - 1) if not nodes.equal(tensor.shape[i], 1)]
        last = max(varying, default=0)
        if len(varying) in (0, last + 1) or last == made.dim() - 2:
            continue
        sizes = [*made.shape[:last + 1], *tensor.shape[last + 1:]]
        key, moved = (each, str(sizes)), _Moved(graph)
        if key not in spread:
            with graph.inserting_before(node):
                wide = moved.call(Aten.expand.default, (each, sizes), tensor.expand(sizes))
                spread[key] = moved.call(Aten.clone.default, (wide,), tensor.new_empty(sizes),
                                         memory_format=torch.contiguous_format)
        node.replace_input_with(each, spread[key])
