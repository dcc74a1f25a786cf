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


class Orders:
    """The operations of a graph whose dimensions are in another order during the search for regions."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.moved: dict[Node, tuple[Node, list[int]]] = {}  # for each operation, what took its place, and its order
        self.operands: dict[tuple[Node, str], Node] = {}  # by the node from which they were made, and how
        self.copies: dict[Node, bool] = {}  # the copies that were made, and whether the operand was repeated before
        self.made: list[Node] = []

    def write(self) -> None:
        """Moves permutations that follow or precede a norm."""
        shapes = [value(node.args[0]).shape for node in self.graph.nodes if is_row_reduction(node)]  # type: ignore[union-attr]
        starts = {node: _moves(node) for node in self.graph.nodes if _is_permutation(node)}
        after = {node: dims for node, dims in starts.items() if _meets_a_norm(node.args[0], lambda each: each.all_input_nodes)}
        before = {node: dims for node, dims in starts.items()
                  if node not in after and _meets_a_norm(node, lambda each: each.users)}
        self._sink(after)
        self._raise(before)
        of_norms = list({str(shape): shape for shape in shapes}.values())
        for node in list(self.graph.nodes):
            made = value(node)
            if made is not None and kind_of(node) == "pointwise" and any(nodes.same(made.shape, shape) for shape in of_norms):
                self._spread_operands(node, made)
        for node in self.graph.nodes if self.moved else ():
            if node.target in (Aten.view.default, Aten._unsafe_view.default):
                node.target = Aten.reshape.default  # what it reads may be contiguous no longer

    def restore(self) -> dict[Node, Node]:
        """Restores the operations that no region took. Returns for each of them what is in its place."""
        for copy, is_spread in self.copies.items():
            for user in list(copy.users):
                if user.target is not torch.ops.normjit.region.default:
                    source: Any = copy.args[0]
                    user.replace_input_with(copy, source.args[0] if is_spread else source)
        restored: dict[Node, Node] = {}
        by_place = {again: (node, dims) for node, (again, dims) in self.moved.items()}
        for again in [each for each in self.graph.nodes if each in by_place]:
            node, dims = by_place[again]
            with self.graph.inserting_before(again):
                args = torch.fx.node.map_arg(again.args, lambda each: self._as_it_was(each, dims, restored))
                restored[again] = self.graph.call_function(again.target, args, again.kwargs)
                restored[again].meta.update(node.meta)
        for again, node in reversed(restored.items()):
            self._leave(again, by_place[again][1], node)
        left = set(self.graph.nodes)
        for each in reversed(self.made):
            if each in left and not each.users:
                self.graph.erase_node(each)
        return {node: restored[again] for node, (again, _) in self.moved.items() if again in restored}

    def _as_it_was(self, node: Node, dims: list[int], restored: dict[Node, Node]) -> Node:
        """Returns an operand in the order that its user had before."""
        if node in restored:
            return restored[node]
        return self._permuted(node, _inverse(dims)) if _dims(node) > 1 else node

    def _leave(self, again: Node, dims: list[int], node: Node) -> None:
        """Erases the operation `again`. Its users read `node` instead."""
        for user in list(again.users):
            if user.target is Aten.permute.default and _moves(user) == _inverse(dims):
                user.replace_all_uses_with(node)
                self.graph.erase_node(user)
        if again.users:
            with self.graph.inserting_after(node):
                again.replace_all_uses_with(self._permuted(node, dims))
        self.graph.erase_node(again)

    def _sink(self, starts: dict[Node, list[int]]) -> None:
        """Moves permutations that follow a norm past the operations that read them."""
        views = dict(starts)  # of what is in the norm's order
        for node in list(self.graph.nodes):
            from_norm = [each for each in node.all_input_nodes if each in views]
            if not from_norm or not _is_movable(node, value(from_norm[0])):  # type: ignore[arg-type]
                continue
            dims = views[from_norm[0]]
            with self.graph.inserting_before(node):
                again = self._move(node, _inverse(dims), lambda each: each.args[0] if views.get(each) == dims else each)
                views[self._permuted(again, dims)] = dims
            node.replace_all_uses_with(next(reversed(views)))
            self.graph.erase_node(node)
        for node in reversed(list(views)):
            if not node.users:
                self.graph.erase_node(node)

    def _raise(self, starts: dict[Node, list[int]]) -> None:
        """Moves permutations that precede a norm to a place before the operations that they read."""
        wanted: dict[Node, list[int]] = {}
        for start, dims in starts.items():
            self._want(start.args[0], dims, wanted)  # type: ignore[arg-type]
        for node in [each for each in self.graph.nodes if each in wanted]:
            dims = wanted[node]
            with self.graph.inserting_before(node):
                self._move(node, dims, lambda each: self.moved[each][0] if wanted.get(each) == dims else each)
        for node in reversed([each for each in self.moved if each in wanted]):
            self._leave(node, _inverse(wanted[node]), self.moved[node][0])

    def _want(self, start: Node, dims: list[int], wanted: dict[Node, list[int]]) -> None:
        of, waiting = value(start), [start]
        assert of is not None
        for node in waiting:
            if node not in wanted and _is_movable(node, of):
                wanted[node] = dims
                waiting += node.all_input_nodes

    def _move(self, node: Node, dims: list[int], found: Callable[[Node], Any]) -> Node:
        """Writes an operation for another order of its dimensions. found() returns an operand that is in this order
        already, or else the node itself."""
        made = value(node)
        assert made is not None
        full = [made.shape[each] for each in dims]

        def operand(each: Node) -> Node:
            known = found(each)
            return self._operand(each, dims, full) if known is each else known

        again = self._call(node.target, torch.fx.node.map_arg(node.args, operand), made.new_empty(full), **node.kwargs)
        again.meta = {**node.meta, **again.meta}
        self.moved[node] = again, dims
        return again

    def _operand(self, node: Node, dims: list[int], full: list[Any]) -> Node:
        """Returns an operand of a moved operation in the order of its result, whose sizes are `full`. A matrix that no
        kernel can read in this order is copied, which Inductor does where it is computed."""
        made, key = value(node), (node, f"order {dims}")
        assert made is not None
        if made.dim() < 2:
            return node
        if key not in self.operands:
            found = self._permuted(node, dims)
            tensor = value(found)
            assert tensor is not None
            if nodes.same(tensor.shape, full) and not _has_rows(tensor):
                found = self._copy(found, full)
            self.operands[key] = found
        return self.operands[key]

    def _spread_operands(self, node: Node, made: torch.Tensor) -> None:
        """Repeats an operand that is the same for some rows, such as the angles of tokens for each element of a batch,
        so that one stride describes its rows. An operand that is the same for later dimensions, such as heads, is not
        repeated over these."""
        for each in node.all_input_nodes:
            tensor = value(each)
            if tensor is None or tensor.dim() != made.dim() or not nodes.equal(tensor.shape[-1], made.shape[-1]):
                continue
            varying = [i for i in range(made.dim() - 1) if not nodes.equal(tensor.shape[i], 1)]
            last = max(varying, default=0)
            if len(varying) in (0, last + 1) or last == made.dim() - 2:
                continue
            sizes = [*made.shape[:last + 1], *tensor.shape[last + 1:]]
            key = each, f"sizes {sizes}"
            if key not in self.operands:
                with self.graph.inserting_before(node):
                    known = [-1 if nodes.equal(size, tensor.shape[i]) else self._size(node, i, size)
                             for i, size in enumerate(sizes)]
                    spread = self._call(Aten.expand.default, (each, known), tensor.expand(sizes))
                    self.operands[key] = self._copy(spread, sizes, is_spread=True)
            node.replace_input_with(each, self.operands[key])

    def _size(self, node: Node, dim: int, size: Any) -> Any:
        """Returns the size of a dimension of an operation's result: a number, or a node that reads it from an operand."""
        if isinstance(size, int):
            return size
        source = next(each for each in node.all_input_nodes
                      if _dims(each) == _dims(node) and nodes.equal(value(each).shape[dim], size))  # type: ignore[union-attr]
        read = self.graph.call_function(Aten.sym_size.int, (source, dim))
        read.meta["val"] = size
        self.made.append(read)
        return read

    def _copy(self, node: Node, sizes: list[Any], is_spread: bool = False) -> Node:
        tensor = value(node)
        assert tensor is not None
        copy = self._call(Aten.clone.default, (node,), tensor.new_empty(sizes), memory_format=torch.contiguous_format)
        self.copies[copy] = is_spread
        return copy

    def _permuted(self, node: Node, dims: list[int]) -> Node:
        """Returns a node in another order of its dimensions."""
        made = value(node)
        assert made is not None
        if node.target is Aten.permute.default and [_moves(node)[each] for each in dims] == list(range(made.dim())):
            return node.args[0]  # type: ignore[return-value]
        return self._call(Aten.permute.default, (node, dims), made.permute(dims))

    def _call(self, target: Any, args: Any, made: torch.Tensor, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = made
        self.made.append(node)
        return node


def _is_permutation(node: Node) -> bool:
    """True for a permutation that keeps the last dimension where it is."""
    made = value(node)
    if node.target is not Aten.permute.default or made is None or made.dim() < 3 or made.dtype not in graph_operator.TYPES:
        return False
    return _moves(node)[-1] == made.dim() - 1 and isinstance(made.shape[-1], int)


def _moves(node: Node) -> list[int]:
    made = value(node)
    assert made is not None
    dims: Any = node.args[1]
    return [each % made.dim() for each in dims]


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
