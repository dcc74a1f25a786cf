# SPDX-License-Identifier: Apache-2.0
"""Predicts the time of a region. For Inductor's kernels, this is the number of bytes that they move, divided by a
bandwidth: the bandwidth of a copy of as many bytes on the device, times the share of it that such kernels reach.
normjit's kernel is measured."""
from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from normjit.torch import graph_calibration, graph_formula, graph_nodes as nodes, graph_operator, graph_times
from normjit.torch.graph_nodes import FULL, Node, hint, kind_of, value
from normjit.torch.graph_regions import Region, is_convex, is_row_reduction

MOST_MEASURED = 1 << 28  # the most bytes of tensors for measuring a kernel; for more rows, the time is scaled
CLEARLY = 0.85  # a kernel is taken only below this share of Inductor's time, because measurements vary
MOST_NEIGHBOURS = 100
GPU_KERNEL = 3e-6  # seconds from one kernel of a stream to the next, on any GPU that normjit serves
CPU_KERNEL = 2e-6  # seconds that Inductor's C++ kernels take to start


@dataclass(frozen=True)
class Moved:
    """The bytes that kernels move, with those for sums over rows counted separately, the number of kernels, and their kind
    for graph_calibration."""

    rows: int
    columns: int
    kernels: int
    kind: str

    @property
    def bytes(self) -> int:
        return self.rows + self.columns


@dataclass(frozen=True)
class Machine:
    """What a device can do; see graph_calibration.share_of() for `shares`."""

    device: torch.device
    shares: Mapping[graph_calibration.Need, float] | None = None

    def inductor_seconds(self, moved: Moved, dtype: torch.dtype) -> float:
        total = moved.rows + moved.columns
        share = graph_calibration.share_of(self.device, dtype, moved.kind, self.shares)
        start = CPU_KERNEL if self.device.type == "cpu" else GPU_KERNEL
        return total / (graph_times.bandwidth(self.device, total) * share) + moved.kernels * start

    def copy_seconds(self, moved: int) -> float:
        return moved / graph_times.bandwidth(self.device, moved)

    def normjit_seconds(self, region: Region, by: graph_formula.Written) -> float:
        """Returns how long a region's kernel takes, including its call."""
        return _measured(region, by)


_times: dict[tuple[str, int], float] = {}


def _measured(region: Region, by: graph_formula.Written) -> float:
    total = hint(region.frame.rows) or 1
    size = sum(map(_bytes, (*by.inputs, *by.outputs)))
    rows = max(total // max(size // MOST_MEASURED, 1), 1)
    slices = 1 if not region.frame.split else min(hint(region.frame.slices) or 1, rows)
    key = by.spec, total
    if key not in _times:
        with unset_fake_temporarily(), torch.no_grad():
            tensors = [_like(node, region, rows // slices, slices) for node in by.inputs]
            one = -1 if region.frame.rows_first else 1
            layouts = by.layouts if not region.frame.split else f"{by.layouts.rpartition(' ')[0]} {one}"
            call = functools.partial(torch.ops.normjit.region.default, by.spec, layouts, tensors)
            with graph_operator.uncounted(by.spec):
                _times[key] = graph_times.seconds(call, region.frame.device) * total / (rows // slices * slices)
    return _times[key]


def _like(node: Node, region: Region, rows: int, slices: int) -> torch.Tensor:
    """Makes a tensor like an input of a region, but with fewer rows and dimensions."""
    tensor, axes, cols = value(node), region.inputs[node], region.frame.cols
    assert tensor is not None
    first = (slices,) if region.frame.split else ()
    sizes = {FULL: (*first, rows, cols), nodes.ROW: (*first, rows, 1), nodes.COLUMN: (cols,), nodes.SHARED: (rows, cols),
             nodes.PER_SLICE: (*first, 1, cols), nodes.SCALAR: ()}[axes]
    if region.frame.rows_first:
        sizes = {FULL: (rows, slices, cols), nodes.SHARED: (rows, 1, cols)}.get(axes, sizes)
    return torch.full(sizes, 0.5, dtype=tensor.dtype, device=tensor.device)


@dataclass(frozen=True)
class Prediction:
    """Bytes and seconds of the graph around a region: with normjit's kernel, and with Inductor's kernels only."""

    normjit_bytes: int
    inductor_bytes: int
    normjit_seconds: float
    inductor_seconds: float

    @property
    def is_faster(self) -> bool:
        return self.normjit_seconds < self.inductor_seconds * CLEARLY


class Predictor:
    """Predicts times for regions that are parts of one region."""

    def __init__(self, region: Region, on: Machine) -> None:
        self.on, self.around = on, neighbourhood(region)
        self.replaced = _kernels(self.around, region, set())

    def moved(self, region: Region) -> tuple[int, Moved]:
        """Returns how many bytes a region's kernel moves, and how many Inductor's kernels around it move."""
        outputs = graph_formula.emitted(region)
        left = _kernels(self.around - region.axes.keys(), region, set(outputs))
        return sum(map(_bytes, region.inputs)) + sum(map(_bytes, outputs)), left

    def total(self, region: Region) -> int:
        moved, left = self.moved(region)
        return moved + left.bytes

    def predict(self, region: Region, by: graph_formula.Written) -> Prediction:
        return self._predict(region, self.on.normjit_seconds(region, by))

    def predict_at_best(self, region: Region) -> Prediction:
        """Predicts the time with a kernel that is as fast as a copy of as many bytes. If even that is too slow, no
        kernel is made."""
        return self._predict(region, self.on.copy_seconds(self.moved(region)[0]))

    def _predict(self, region: Region, seconds: float) -> Prediction:
        moved, left = self.moved(region)
        dtype = min((value(node).dtype for node, axes in region.inputs.items() if axes == FULL),  # type: ignore[union-attr]
                    key=lambda each: each.itemsize)
        return Prediction(moved + left.bytes, self.replaced.bytes, seconds + self.on.inductor_seconds(left, dtype),
                          self.on.inductor_seconds(self.replaced, dtype))


def best_part(region: Region, on: Machine) -> Region:
    """Returns the part of a region that makes the graph move the fewest bytes, in the part and around it."""
    if hint(region.frame.rows) is None:
        return region
    predictor = Predictor(region, on)
    least, is_better = predictor.total(region), True
    while is_better:
        is_better = False
        for node in region.removable():
            part = region.without(node)
            moved = predictor.total(part) if part.reductions() else least
            if moved < least:
                region, least, is_better = part, moved, True
                break
    return region


def neighbourhood(region: Region) -> set[Node]:
    """Returns a region together with the nodes around it that Inductor would fuse with it."""
    members = dict.fromkeys(region.members())
    waiting = [each for node in members for each in (*node.all_input_nodes, *node.users)]
    while waiting and len(members) < len(region.axes) + MOST_NEIGHBOURS:
        node = waiting.pop()
        if node in members or not _is_fusable(node, region) or not is_convex(members, node, region.order):
            continue
        members[node] = None
        waiting += [*node.all_input_nodes, *node.users]
    return set(members)


def _is_fusable(node: Node, region: Region) -> bool:
    """True for nodes that Inductor can fuse with their neighbours: element-wise operations, views and sums."""
    target: Any = node.target
    if node.op != "call_function" or value(node) is None or node not in region.order:
        return False
    if kind_of(node) is not None or _is_view(node):
        return True
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags


def _kernels(inside: set[Node], region: Region, written: set[Node]) -> Moved:
    """Returns how many bytes Inductor's kernels for these nodes move, and the number of kernels: one for each set of
    connected nodes, and one for all sums over rows, which reads its operands again."""
    columns = [node for node in inside if _is_column_sum(node)]
    rest = inside.difference(columns)
    moved, summed, count, read_by_rows = 0, 0, 0, set()
    outside_users = _used_outside(inside)
    for part in _connected(rest):
        read = {_base(each) for node in part for each in node.all_input_nodes if each not in part and not _is_free(each)}
        made = {node for node in part if (node in outside_users or any(user in columns for user in node.users)
                                          and not _is_inlined(node)) and not _is_view(node)}
        if not made:  # only views, or values that other kernels compute for themselves
            continue
        moved += sum(map(_bytes, read)) + sum(map(_bytes, made))
        count += 1
        if any(is_row_reduction(node) for node in part):
            read_by_rows |= read
    if columns:
        realised = outside_users | written
        read = {leaf for node in columns for leaf in _leaves(node, rest, realised)}
        if read & read_by_rows and _are_mixed(columns, rest, region):
            read -= read_by_rows
        else:
            count += 1 if region.frame.device.type == "cpu" else 2  # on a GPU a second kernel adds the partial sums
        summed = sum(map(_bytes, read)) + sum(map(_bytes, columns))
    kind = "columns" if summed > 0 else "rows"
    if any(node.target is nodes.turn for node in inside):
        kind = "rotated by angles" if _reads_angles(region) else "rotated"
    return Moved(moved, summed, count, kind)


def _reads_angles(region: Region) -> bool:
    """True if an input of a region comes from sines or cosines that Inductor computes where they are read."""
    waiting = list(region.inputs)
    for node in waiting:  # the list grows
        if node.target in (nodes.Aten.cos.default, nodes.Aten.sin.default):
            return True
        if _is_fusable(node, region):
            waiting += [each for each in node.all_input_nodes if each not in waiting]
    return False


def _is_column_sum(node: Node) -> bool:
    if kind_of(node) != "sum" or node.target is not nodes.Aten.sum.dim_IntList:
        return False
    source, over = value(node.args[0]), nodes.dimensions(node)
    return source is not None and over is not None and source.dim() - 1 not in over


def _used_outside(inside: set[Node]) -> set[Node]:
    """Returns the nodes that nodes outside use, directly or through views of them."""
    found: set[Node] = set()
    waiting = [node for node in inside if any(user not in inside for user in node.users)]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        if _is_view(node) and node.args[0] in inside:
            waiting.append(node.args[0])  # type: ignore[arg-type]
    return found


def _are_mixed(columns: list[Node], rest: set[Node], region: Region) -> bool:
    """True if Inductor computes sums over rows and along rows in one kernel. Follows Inductor's
    MixOrderReduction.can_fuse()."""
    triton: Any = torch._inductor.config.triton
    if region.frame.device.type == "cpu" or not getattr(triton, "mix_order_reduction", False):
        return False
    rows = hint(region.frame.rows) or 0
    if rows < 4096 or rows * region.frame.cols < 5 << 20 or region.frame.cols > 1 << 14:
        return False
    waiting, seen = list(columns), set()
    while waiting:  # such sums must not depend on each other
        for each in waiting.pop().all_input_nodes:
            if each in rest and each not in seen:
                if is_row_reduction(each):
                    return False
                seen.add(each)
                waiting.append(each)
    return True


def _is_inlined(node: Node) -> bool:
    """True if the kernel of a sum over rows computes this operand itself."""
    return kind_of(node) in ("pointwise", "cast", "view")


def _leaves(node: Node, inside: set[Node], realised: set[Node]) -> set[Node]:
    """Returns the nodes that a kernel reads to compute a sum over rows."""
    found, waiting, seen = set(), list(node.all_input_nodes), set()
    while waiting:
        each = waiting.pop()
        if each in seen or _is_free(each):
            continue
        seen.add(each)
        if each not in inside or (each in realised and not _is_view(each)) or not _is_inlined(each):
            found.add(_base(each))
        else:
            waiting += each.all_input_nodes
    return found


def _connected(members: set[Node]) -> Iterable[set[Node]]:
    left = set(members)
    while left:
        waiting = [left.pop()]
        part = set(waiting)
        while waiting:
            node = waiting.pop()
            for each in (*node.all_input_nodes, *node.users):
                if each in left:
                    left.discard(each)
                    part.add(each)
                    waiting.append(each)
        yield part


def _is_view(node: Node) -> bool:
    return kind_of(node) == "view" or node.target is nodes.Aten.permute.default


def _is_free(node: Node) -> bool:
    """True for nodes that no kernel has to read: numbers, and constants that are computed where they are used."""
    return value(node) is None or node.target is nodes.Aten.full.default


def _base(node: Node) -> Node:
    """Returns the node of which a node is a view."""
    while _is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _bytes(node: Node) -> int:
    tensor = value(node)
    if tensor is None:
        return 0
    count = tensor.dtype.itemsize
    for size, stride in zip(tensor.shape, tensor.stride()):
        if not nodes.same((stride,), (0,)):
            count *= hint(size) or 1
    return count
