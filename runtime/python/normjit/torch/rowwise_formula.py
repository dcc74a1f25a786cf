# SPDX-License-Identifier: Apache-2.0
"""Writes the graph of a row-wise function as a formula."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from normjit._library import InvalidArgument
from normjit.torch import rowwise_halves as halves
from normjit.torch.rowwise_writer import Shapes, Writer


def letters(name: str) -> str:
    """Returns a Python name in the form that a formula allows: letters, digits and _, at most 32."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in name)[:32]


class Output(NamedTuple):
    """An output of a formula."""

    name: str
    axes: str
    dtype: str  # the name of torch's type
    is_column: bool  # it is [..., 1] in torch


class Written(NamedTuple):
    """A function as a formula."""

    text: str
    tensors: tuple[str, ...]  # the names of the function's tensors, in order
    inputs: tuple[str, ...]  # the names of those that the formula reads
    outputs: tuple[Output, ...]
    results: Any  # the function's results, each as the name of an output or of one of the function's tensors, or None


def written(name: str, graph: torch.fx.GraphModule, inputs: Mapping[str, str], shapes: Shapes) -> Written:
    """Writes the graph of the function `name`, which returns a list, as a formula. `inputs` maps the names of the tensors
    in the formula, in order, to their axes."""
    writer = Writer(shapes)
    names = iter(inputs.items())
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            writer.values[node], writer.kinds[node] = next(names)
        elif node.op != "output":
            writer.kinds[node] = writer.kind_of(node)
            writer.write(node)
    first = next(iter(inputs)).rpartition("_")[0]
    results: Any = graph.graph.output_node().args[0]
    outputs: dict[torch.fx.Node, Output] = {}
    for node in results:
        if node is None or node.op == "placeholder" or node in outputs:
            continue
        axes, made = writer.axes(node), node.meta["val"]
        if not made.dtype.is_floating_point and made.dtype != torch.int8:
            raise writer.refused(node, f"makes a tensor of {made.dtype}; results are floating-point numbers or torch.int8")
        if axes not in ("M,N", "M"):
            raise InvalidArgument(f"{name}: each result must be a tensor of the shape of {first}, or of that shape with a "
                                  "last dimension of 1 or without the last dimension")
        is_column = axes == "M" and made.dim() == len(shapes["M,N"])
        outputs[node] = Output(f"y{len(outputs)}", axes, str(made.dtype).removeprefix("torch."), is_column)
    readable = {**inputs, **{kind.signs: "N" for kind in halves.KINDS}}
    lines, used = writer.needed_for([f"{each.name} = {writer.operand(node, node)} * 1" for node, each in outputs.items()])
    if outputs and "M,N" not in [inputs[each] for each in used & inputs.keys()]:
        raise InvalidArgument(f"{name}: no result is computed from {first} or another tensor of its shape; one must be")
    declared = ", ".join(f"{each}[{axes}]" for each, axes in readable.items() if each in used)
    computed = ", ".join(f"{each.name}[{each.axes}]" for each in outputs.values())
    text = f"norm rowwise_{letters(name)}({declared}) -> {computed} {{ {'; '.join(lines)} }}"
    return Written(text, tuple(inputs), tuple(each for each in readable if each in used), tuple(outputs.values()),
                   [outputs[node].name if node in outputs else node and writer.values[node] for node in results])
