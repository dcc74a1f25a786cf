# SPDX-License-Identifier: Apache-2.0
"""Writes a region of a compiled graph as a formula, and replaces the region by the formula's operator."""
from __future__ import annotations

from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch

from normjit._library import InvalidArgument
from normjit.torch import _kernels, graph_nodes as nodes, graph_operator, graph_scalars
from normjit.torch.graph_nodes import COLUMN, FULL, ROW, SCALAR, Node, kind_of, value
from normjit.torch.graph_operator import TYPES
from normjit.torch.graph_regions import SUM, Region


class Unsaid(InvalidArgument):
    """Raised for a node that no formula can express, or whose tensor a kernel cannot read or write as it is."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(f"{node.name}: {why}")
        self.node = node


@dataclass
class Written:
    """A region as a spec with a formula."""

    spec: str
    layouts: str
    inputs: list[Node]
    outputs: list[Node]


def emitted(region: Region) -> list[Node]:
    """Returns the values that a region must write, which are those with users outside. Leaves out values that users
    outside can compute at no cost: views, casts to larger types, and values computed from inputs of [N]."""
    wanted: set[Node] = set()
    waiting = [node for node in region.members() if any(user not in region for user in node.users)]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if not stays_outside(region, node):
            wanted.add(node)
            continue
        for each in node.all_input_nodes:
            if each in region and each not in seen:
                seen.add(each)
                waiting.append(each)
    return [node for node in region.members() if node in wanted]


def stays_outside(region: Region, node: Node) -> bool:
    """True if users outside a region go on computing a value from nodes that stay in the graph."""
    kind, axes = kind_of(node), region.axes[node]
    if kind == "view" or axes in (COLUMN, nodes.PER_SLICE):
        return True
    source = value(node.args[0]) if kind == "cast" else None
    made = value(node)
    return source is not None and made is not None and made.dtype.itemsize >= source.dtype.itemsize and \
        nodes.same(made.stride(), source.stride())


def fitted(region: Region) -> tuple[Region, Written]:
    """Returns a region, without the nodes at its edges that no formula can express, and its formula."""
    while True:
        try:
            return region, written(region)
        except Unsaid as error:
            at_edge = set(region.removable())
            culprits = [error.node] if error.node in region else [user for user in error.node.users if user in region]
            if not at_edge.issuperset(culprits):
                raise
            for node in culprits:
                region = region.without(node)
            if not region.reductions():
                raise


def fewer_tensors(region: Region, most: int) -> Region:
    """Removes nodes at a region's edges until it has at most `most` tensors."""
    def count(part: Region) -> int:
        outputs = emitted(part)
        each = [*part.inputs.values(), *(part.axes[node] for node in outputs)]
        if any(map(nodes.is_exchange, part.axes)):  # a tensor with columns counts as two
                                                                               # halves
            each += [axes for axes in each if axes not in (ROW, SCALAR)]
        return len(each)

    while count(region) > most:
        parts = [part for part in map(region.without, region.removable()) if part.reductions()]
        if not parts:
            raise InvalidArgument(f"it has {count(region)} tensors or halves, and formulas at most {most}")
        region = min(parts, key=count)
    return region


def written(region: Region) -> Written:
    """Returns a region as a spec. Raises InvalidArgument if no spec can express it."""
    writer, inputs, outputs = _Writer(region), list(region.inputs), emitted(region)
    if not outputs:
        raise InvalidArgument("nothing of it is used")
    for node in outputs:
        if node.target in nodes.EXTREMES and not _is_saved(region, node.args[0]):  # type: ignore[arg-type]
            raise Unsaid(node, "a maximum of computed values, which others may look for among theirs")
        if _given(region, node) is None and _meets_an_equal(region, node):
            raise Unsaid(node, "others look for elements that are equal, to the last bit, to what is computed from it")
    layouts = [f"{_layout(region, node, inputs)}:{_type(node)}" for node in outputs]
    header: list[str] = []
    types: list[str] = []
    for node in inputs:
        name = f"a{len(header)}"
        _check_rows(region, node)
        writer.names[node] = name
        header.append(f"{name}[{_axes(region, region.inputs[node])}]")
        types.append(f"{name}={_type(node)}")
    for node in region.members():
        writer.write(node)
    made = []
    for i, node in enumerate(outputs):
        axes = region.axes[node]
        if axes == FULL and writer.axes[node] != FULL:
            raise Unsaid(node, "is one value for each row, which would be written for each column")
        made.append(f"o{i}[{_axes(region, axes)}]")
        writer.lines.append(f"o{i} = {writer.names[node]} * 1")
        types.append(f"o{i}={_type(node)}")
    names = [f"o{i}" for i in range(len(outputs))]
    spec = (f"norm region({', '.join(header)}) -> {', '.join(made)} {{ {'; '.join(writer.lines)} }} pass=forward "
            f"cols={region.frame.cols} {' '.join(types)} out={','.join(names)}")
    if _kernels.is_batch_invariant() and any("M" in each for each in made):
        spec += " invariant=1"
    if region.frame.split:
        spec += " slices=any"
        layouts.append(str(region.frame.code))
    return Written(spec, " ".join(layouts), inputs, outputs)


def _given(region: Region, node: Node) -> Node | None:
    """Returns the input from which a node is made by views and casts to larger types, or which it is; None if the node
    is computed."""
    while node in region and kind_of(node) in ("view", "cast") and stays_outside(region, node):
        node = node.args[0]  # type: ignore[assignment]
    return None if node in region else node


def _is_saved(region: Region, node: Node) -> bool:
    """True for an input, or a view or cast of one, that neither another region nor a backward pass computes."""
    source = _given(region, node)
    while source is not None and kind_of(source) == "view":
        source = source.args[0]  # type: ignore[assignment]
    return source is not None and not nodes.is_computed_again(source)


def _meets_an_equal(region: Region, node: Node) -> bool:
    """True if users outside a region compare what they compute from a node for equality. If only one side of the
    comparison comes from a formula's kernel, equal numbers may differ in the last bit."""
    waiting, seen = [node], {node}
    for each in waiting:  # the list grows
        for user in each.users:
            if user in seen or (user in region and not stays_outside(region, user)):
                continue
            if user.target is nodes.Aten.eq.Tensor or nodes.is_looked_for(user):
                return True
            seen.add(user)
            waiting += [user] if nodes.is_computed_again(user) else []
    return False


def replace(graph: torch.fx.Graph, region: Region, by: Written) -> None:
    """Replaces a region by the operator of a formula. The graph must be sorted afterwards."""
    before = min(region.members(), key=region.order.__getitem__)
    operator: Any = torch.ops.normjit.region.default
    with graph.inserting_before(before):
        inputs = [_in_order(graph, region, node) for node in by.inputs]
        tensors = [value(node) for node in inputs]
        call = graph.call_function(operator, (by.spec, by.layouts, inputs))
        call.meta["val"] = graph_operator.empty_outputs(by.spec, by.layouts, tensors)  # type: ignore[arg-type]
        call.meta["eager_input_vals"] = ((by.spec, by.layouts, tensors), {})
        for i, node in enumerate(by.outputs):
            got = graph.call_function(getitem, (call, i))
            got.meta.update({key: each for key, each in node.meta.items() if key != "eager_input_vals"})
            got.meta["val"] = call.meta["val"][i]
            got = _as_it_was(graph, region, node, got)
            for user in list(node.users):
                if user not in region or stays_outside(region, user):
                    user.replace_input_with(node, got)
    for node in reversed(region.members()):
        if not node.users:
            graph.erase_node(node)


def _in_order(graph: torch.fx.Graph, region: Region, node: Node) -> Node:
    """Returns an input as the operator reads it. It reads numbers of rows slice by slice."""
    tensor = value(node)
    assert tensor is not None
    if graph_scalars.is_maybe_a_number(node):
        return graph_scalars.times_one(graph, node, tensor, tensor.device)
    if region.inputs[node] != ROW or not region.frame.rows_first:
        return node
    slices, rows = _row_dimensions(region, tensor)
    dims = [*slices, *rows, *range(len(slices) + len(rows), tensor.dim())]
    permuted = graph.call_function(nodes.Aten.permute.default, (node, dims))
    permuted.meta["val"] = tensor.permute(dims)
    if nodes.is_contiguous(permuted.meta["val"]):
        return permuted
    copied = graph.call_function(nodes.Aten.clone.default, (permuted,), {"memory_format": torch.contiguous_format})
    copied.meta["val"] = tensor.new_empty(permuted.meta["val"].shape)
    return copied


def _as_it_was(graph: torch.fx.Graph, region: Region, node: Node, got: Node) -> Node:
    """Returns what the operator made for a node, in the node's order of dimensions."""
    tensor = value(node)
    assert tensor is not None
    if region.axes[node] != ROW or not region.frame.rows_first:
        return got
    slices, rows = _row_dimensions(region, tensor)
    dims = [*range(len(slices), len(slices) + len(rows)), *range(len(slices))]
    permuted = graph.call_function(nodes.Aten.permute.default, (got, dims))
    permuted.meta["val"] = got.meta["val"].permute(dims)
    if tensor.dim() == len(dims):
        return permuted
    whole = graph.call_function(nodes.Aten.unsqueeze.default, (permuted, -1))
    whole.meta["val"] = permuted.meta["val"].unsqueeze(-1)
    return whole


def _row_dimensions(region: Region, tensor: torch.Tensor) -> tuple[list[int], list[int]]:
    """Returns the dimensions of slices and of rows in a tensor of one number for each row, which may have a last
    dimension of 1."""
    slices, rows = region.frame.parts(range(tensor.dim()))
    if not nodes.same((nodes.product([tensor.shape[each] for each in slices]),), (region.frame.slices,)):
        slices, rows = region.frame.parts(range(tensor.dim() + 1))
    return list(slices), list(rows)


def _type(node: Node) -> str:
    return TYPES[value(node).dtype]  # type: ignore[union-attr]


def _axes(region: Region, axes: str) -> str:
    """Returns axes as a formula writes them."""
    axes = {SUM: "N", nodes.PER_SLICE + SUM: nodes.PER_SLICE}.get(axes, axes)
    if region.frame.split:
        return {FULL: "S,M,N", ROW: "S,M", nodes.SHARED: "M,N"}.get(axes, axes)
    return axes


def _check_rows(region: Region, node: Node) -> None:
    """Refuses an input whose rows would have to be copied."""
    tensor, axes = value(node), region.inputs[node]
    assert tensor is not None
    if axes in (FULL, nodes.SHARED, nodes.PER_SLICE):
        leading = list(zip(tensor.shape, tensor.stride()))
        slices, rows = {FULL: region.frame.parts(leading), nodes.SHARED: ((), leading[:-1]),
                        nodes.PER_SLICE: (leading[:-1], ())}[axes]
        for what, dims in (("slices", slices), ("rows", rows)):
            sizes, strides = zip(*dims) if dims else ((), ())
            if graph_operator.collapsed(sizes, strides, region.frame.cols, nodes.equal) is None:
                raise Unsaid(node, f"no single stride describes its {what}")
        if not nodes.same(tensor.stride()[-1:], (1,)):
            raise Unsaid(node, "no single stride describes its rows")
    elif not nodes.is_contiguous(tensor) and not (axes == ROW and region.frame.rows_first):
        raise Unsaid(node, "is not contiguous")


def _layout(region: Region, node: Node, inputs: list[Node]) -> str:
    """Returns the code that tells the operator how to derive an output's shape."""
    tensor, axes = value(node), region.axes[node]
    assert tensor is not None
    if not nodes.is_contiguous(tensor):
        raise Unsaid(node, "would not be contiguous")
    if axes == SUM:
        return f"c{tensor.dim() - 1}"
    forms = {FULL: "m", ROW: "kr", nodes.PER_SLICE + SUM: "st"}[axes]
    for i, each in enumerate(inputs):
        if region.inputs[each] != FULL:
            continue
        shapes = graph_operator.output_shapes(value(each).shape, region.frame.code)  # type: ignore[union-attr]
        for form in forms:
            if nodes.same(shapes[form], tensor.shape):
                return f"{'q' if axes == ROW and region.frame.rows_first else form}{i}"
    raise Unsaid(node, "no input has its shape")


class _Writer:
    """Writes the nodes of a region as lines of a formula."""

    def __init__(self, region: Region) -> None:
        self.region, self.frame = region, region.frame
        self.names: dict[Node, str] = {}
        self.axes: dict[Node, str] = {}  # axes in the formula, which does not expand row values
        self.lines: list[str] = []
        for node, axes in region.inputs.items():
            self.axes[node] = axes

    def write(self, node: Node) -> None:
        kind, source = kind_of(node), node.args[0] if node.args else None
        given = [self.axes[each] for each in nodes.operands(node) if isinstance(each, Node)] if kind != "item" else []
        if kind in ("view", "cast"):
            self.names[node], self.axes[node] = self.names[source], given[0]  # type: ignore[index]
            return
        if kind == "item":
            assert isinstance(source, Node)
            self.names[node], self.axes[node] = self.names[source].split()[node.args[1]], ROW  # type: ignore[index]
            return
        operands = [self._operand(each) for each in nodes.operands(node)]
        if given[0] != FULL and (kind in ("sum", "statistics") or nodes.is_exchange(node)):
            operands[0] = self._repeated(node, operands[0])
            given[0] = FULL
        if kind == "statistics":
            self._write_statistics(node, operands[0])
            return
        if kind == "sum":
            is_row = self.region.axes[node] == ROW
            pattern = nodes.SUMS[node.target] if is_row else "col_sum({0})"  # type: ignore[index]
            self.axes[node] = ROW if is_row else self.region.axes[node]
        else:
            pattern = nodes.pattern_of(node) or ""
            self.axes[node] = _joined(given)
        self.names[node] = self._line(pattern.format(*operands))

    def _write_statistics(self, node: Node, a: str) -> None:
        mean = self._line(f"row_mean({a})")
        centred = self._line(f"{a} - {mean}")
        correction = node.kwargs.get("correction", 1)
        if correction is None:
            correction = 1
        if not isinstance(correction, (int, float)) or correction >= self.frame.cols:
            raise Unsaid(node, f"its correction is {correction!r}")
        variance = f"row_mean({centred} * {centred})" if correction == 0 else \
            f"row_sum({centred} * {centred}) / {float(self.frame.cols - correction)!r}"
        variance = self._line(variance)
        self.axes[node] = ROW
        self.names[node] = variance if node.target is nodes.Aten.var.correction else f"{variance} {mean}"

    def _repeated(self, node: Node, a: str) -> str:
        """Writes a value that the graph repeats as the matrix that `node` needs."""
        matrix = next((each for each, axes in self.region.inputs.items() if axes == FULL), None)
        if matrix is None:
            raise Unsaid(node, "needs a value for each column")
        return self._line(f"like({a}, {self.names[matrix]})")

    def _operand(self, each: Any) -> str:
        if isinstance(each, Node):
            return self.names[each]
        return f"({float(each)!r})" if each < 0 else repr(float(each))

    def _line(self, text: str) -> str:
        self.lines.append(f"v{len(self.lines)} = {text}")
        return f"v{len(self.lines) - 1}"


def _joined(axes: list[str]) -> str:
    """Returns the axes of a value that is computed from values of these axes."""
    axes = [each for each in axes if each != SCALAR]
    if not axes:
        return SCALAR
    if FULL in axes or nodes.SHARED in axes or (ROW in axes and len(set(axes)) > 1):
        return FULL
    return axes[0] if len(set(axes)) == 1 else FULL
