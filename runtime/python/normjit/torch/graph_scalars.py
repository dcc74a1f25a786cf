# SPDX-License-Identifier: Apache-2.0
"""Scalars in the host's memory that operations on a GPU read, such as a norm's eps with dynamic=True. Kernels of formulas
read scalars from the GPU's memory. While regions are searched, each such scalar is multiplied by a 1 on the GPU.
Inductor compiles the product to a kernel of one thread, which gets the scalar as an argument: the host waits for
nothing."""
from __future__ import annotations

import sys
from typing import Any

import torch

from normjit.torch.graph_nodes import Aten, Node, kind_of, operands, value

WIDE = (torch.float32, torch.float64)  # formulas take no other scalars


class HostScalars:
    """The scalars of a graph that operations on GPUs read from the host's memory."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.moved: dict[tuple[Node, torch.device], Node] = {}

    def write(self) -> None:
        """Moves the scalars of all operations that a region may have."""
        for node in list(self.graph.nodes):
            made = value(node)
            if made is None or made.device.type != "cuda" or kind_of(node) != "pointwise":
                continue
            for each in operands(node):
                if _is_host_scalar(each):
                    node.replace_input_with(each, self._on(made.device, each, node))

    def restore(self) -> None:
        """Gives the operations that no region took their scalars back. Regions that need the same scalar share it."""
        shared: dict[Any, Node] = {}
        for (scalar, device), product in self.moved.items():
            for user in list(product.users):
                if user.target is not torch.ops.normjit.region.default:
                    user.replace_input_with(product, scalar)
            first = shared.setdefault((device, *_source_and_types(scalar)), product) if product.users else product
            if first is not product:
                product.replace_all_uses_with(first)
            if not product.users:
                one = product.args[0]
                self.graph.erase_node(product)
                self.graph.erase_node(one)  # type: ignore[arg-type]

    def _on(self, device: torch.device, scalar: Node, user: Node) -> Node:
        if (scalar, device) not in self.moved:
            tensor = value(scalar)
            assert tensor is not None
            with self.graph.inserting_before(user):
                self.moved[scalar, device] = times_one(self.graph, scalar, tensor, device)
        return self.moved[scalar, device]


def times_one(graph: torch.fx.Graph, scalar: Node, tensor: torch.Tensor, device: torch.device) -> Node:
    """Multiplies a scalar, of which `tensor` is the fake tensor, by a 1 on a device."""
    one = graph.call_function(Aten.full.default, ([], 1.0), {"dtype": tensor.dtype, "device": device, "pin_memory": False})
    product = graph.call_function(Aten.mul.Tensor, (one, scalar))
    one.meta["val"], product.meta["val"] = (tensor.new_empty((), device=device) for _ in range(2))
    return product


def is_maybe_a_number(node: Node) -> bool:
    """True for an input of a graph of compiled autograd that may be what torch calls a wrapped number, such as the 2 of
    x * 2. An operator that is written in Python would get it as a float."""
    tensor = value(node)
    if node.op != "placeholder" or not _is_host_scalar(node) or tensor is None or tensor.dtype != torch.float64:
        return False
    return bool(getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "in_compiled_autograd_region", False))


def _is_host_scalar(node: Any) -> bool:
    tensor = value(node)
    return tensor is not None and tensor.device.type == "cpu" and tensor.dim() == 0 and tensor.dtype in WIDE


def _source_and_types(scalar: Node) -> tuple[Node, tuple[torch.dtype, ...]]:
    """Returns the node from which casts make a scalar, and the types on the way, by which equal scalars are found."""
    types = []
    while kind_of(scalar) == "cast":
        types.append(value(scalar).dtype)  # type: ignore[union-attr]
        scalar = scalar.args[0]  # type: ignore[assignment]
    return scalar, tuple(types)
