# SPDX-License-Identifier: Apache-2.0
"""Norms that are given as formulas, or as row-wise functions of torch code, with their derived gradients."""
from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import normjit
from normjit import _library
from normjit._library import InvalidArgument

Aten = torch.ops.aten


class _Function(torch.autograd.Function):
    """Calls a formula on tensors of [rows, N], [rows] and [N]; saves the statistics that it declares."""

    @staticmethod
    def forward(ctx: Any, norm: normjit.Formula, names: tuple[str, ...], numbers: Mapping[str, float],
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wanted = [name for name in norm.outputs if name not in norm.optional]
        statistics = [name for name in norm.outputs if name in norm.optional and norm.axes(name) == "M"]
        needs_gradient = any(ctx.needs_input_grad)
        given: dict[str, Any] = {**dict(zip(names, tensors)), **numbers}
        made = norm(**given, outputs=wanted + (statistics if needs_gradient else []))
        ctx.norm, ctx.names, ctx.numbers, ctx.wanted = norm, names, numbers, wanted
        ctx.statistics = [name for name in statistics if needs_gradient]
        ctx.save_for_backward(*tensors, *(getattr(made, name) for name in ctx.statistics))
        return tuple(getattr(made, name) for name in wanted)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = dict(zip((*ctx.names, *ctx.statistics), ctx.saved_tensors))
        above = {f"d{name}": _in_rows(gradient, 1 if ctx.norm.axes(name) == "M" else 2)
                 for name, gradient in zip(ctx.wanted, gradients)}
        needed = [name for name, is_needed in zip(ctx.names, ctx.needs_input_grad[3:]) if is_needed]
        with torch.no_grad():
            found = ctx.norm.backward(**saved, **above, **ctx.numbers, outputs=[f"d{name}" for name in needed])
        made = {name: getattr(found, f"d{name}") for name in needed}
        if torch.is_grad_enabled():  # somebody may differentiate these
            made = {name: _Last.apply(gradient, saved[name]) for name, gradient in made.items()}
        return (None, None, None, *(made.get(name) for name in ctx.names))


class _Last(torch.autograd.Function):
    """Returns a gradient; refuses to differentiate it."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError("normjit.torch: the second derivative of a formula is not served")


def _in_rows(tensor: torch.Tensor, dimensions: int) -> torch.Tensor:
    """Returns the tensor with its rows in one dimension, copied if no stride describes them."""
    rows = tensor.reshape(-1, tensor.shape[-1]) if dimensions == 2 else tensor.reshape(-1)
    return rows if rows.stride(-1) == 1 or rows.shape[-1] <= 1 else rows.contiguous()


class Norm:
    """A formula as a differentiable function of tensors; made by formula() and rowwise()."""

    def __init__(self, norm: normjit.Formula) -> None:
        self.formula = norm

    def __repr__(self) -> str:
        return f"normjit.torch.formula({self.formula.text!r})"

    def __call__(self, **given: Any) -> Any:
        """Returns the outputs that are not optional, as a tensor or a tuple of them.

        **given    the inputs by name: tensors of [..., N] for [M,N], of their shape without the last dimension (or
                   with 1 in its place) for [M], and of [N]; and numbers that the formula names

        Gradients flow to every input that requires one; a second derivative is refused, as torch says."""
        norm = self.formula
        given = {name: value for name, value in given.items() if value is not None}
        tensors = {name: value for name, value in given.items() if name in norm.inputs}
        numbers = {name: value for name, value in given.items() if name not in norm.inputs}
        for name, value in tensors.items():
            if not isinstance(value, torch.Tensor):
                raise InvalidArgument(f"{name}: is {type(value).__name__}; must be a tensor")
        matrices = [name for name in tensors if norm.axes(name) == "M,N"]
        if not matrices:
            raise InvalidArgument(f"{norm.name}: none of the matrices is given: {', '.join(norm.inputs)}")
        shape = tensors[matrices[0]].shape
        rows = {}
        for name, value in tensors.items():
            allowed = {"M,N": (shape,), "M": (shape[:-1], (*shape[:-1], 1)), "N": (shape[-1:],)}[norm.axes(name)]
            if tuple(value.shape) not in map(tuple, allowed):
                raise InvalidArgument(f"{name}: its shape is {tuple(value.shape)}; must be "
                                      f"{' or '.join(str(tuple(each)) for each in allowed)}")
            rows[name] = value if norm.axes(name) == "N" else _in_rows(value, len(norm.axes(name).split(",")))
        made = _Function.apply(norm, tuple(rows), numbers, *rows.values())
        names = [name for name in norm.outputs if name not in norm.optional]
        made = tuple(each.view(shape if norm.axes(name) == "M,N" else shape[:-1] if norm.axes(name) == "M" else each.shape)
                     for name, each in zip(names, made))
        return made[0] if len(made) == 1 else made


@functools.lru_cache(maxsize=None)
def formula(text: str) -> Norm:
    """Returns a differentiable function of a formula's text, or of a norm of the library by its name; see
    normjit.formula(). Raises normjit.InvalidArgument with the place of what is wrong."""
    return Norm(normjit.formula(text))


def rowwise(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns the function with normjit's kernels for its forward and backward pass.

        @normjit.torch.rowwise
        def gated(x, z, weight):
            h = x.float()
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
            return (weight * h * torch.nn.functional.silu(z.float())).to(x.dtype)

    `function` computes tensors of x's shape from x, its first tensor, of [..., N], from others of this shape, of [N]
    and of [..., 1], by arithmetic, means and sums over the last dimension, and functions such as rsqrt, exp, sigmoid,
    silu and tanh. It is traced once for each kind of arguments. Values between are not rounded: the result is nearer to
    double precision than the function's own in a 16-bit type. Raises normjit.InvalidArgument with the operation that is
    not row-wise. The arguments that are no tensors are constants of the trace."""
    @functools.wraps(function)
    def traced(*arguments: Any, **named: Any) -> torch.Tensor:
        bound = inspect.signature(function).bind(*arguments, **named)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if isinstance(value, torch.Tensor)}
        if not given:
            raise InvalidArgument(f"{function.__name__}: no tensor is given")
        others = tuple((name, value) for name, value in bound.arguments.items() if name not in given)
        first = next(iter(given.values()))
        kinds = tuple((name, _axes(name, value, first), value.dtype, value.dim()) for name, value in given.items())
        norm, dtype = _traced(function, kinds, others, first.shape[-1])
        result: torch.Tensor = norm(**{f"{name}_": value for name, value in given.items() if f"{name}_" in norm.formula.inputs})
        return result if result.dtype == dtype else result.to(dtype)

    return traced


def _axes(name: str, tensor: torch.Tensor, first: torch.Tensor) -> str:
    if tensor.shape == first.shape:
        return "M,N"
    if tensor.shape == first.shape[-1:]:
        return "N"
    if tensor.shape == (*first.shape[:-1], 1):
        return "M"
    raise InvalidArgument(f"{name}: its shape is {tuple(tensor.shape)}; must be {tuple(first.shape)}, "
                          f"{(first.shape[-1],)} or {(*first.shape[:-1], 1)}")


@functools.lru_cache(maxsize=256)
def _traced(function: Callable[..., Any], kinds: tuple[tuple[str, str, torch.dtype, int], ...],
            others: tuple[tuple[str, Any], ...], cols: int) -> tuple[Norm, torch.dtype]:
    """Returns the Norm of a function for arguments of these kinds, and the type of its result."""
    dimensions = kinds[0][3]
    shapes = {"M,N": (3,) * (dimensions - 1) + (cols,), "N": (cols,), "M": (3,) * (dimensions - 1) + (1,)}
    names = [name for name, *_ in kinds]

    def of_tensors(*tensors: torch.Tensor) -> Any:
        return function(**dict(zip(names, tensors)), **dict(others))

    examples = [torch.empty(shapes[axes], dtype=dtype, device="meta") for _, axes, dtype, _ in kinds]
    graph = make_fx(of_tensors)(*examples)
    writer = _Writer(shapes)
    inputs = iter(kinds)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            name, axes, *_ = next(inputs)
            writer.values[node] = f"{name}_"
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, torch.fx.Node) or writer.axes(result) != "M,N":
                raise InvalidArgument(f"{function.__name__}: its result must be one tensor of the shape of {names[0]}")
            body = "; ".join([*writer.lines, f"y = {writer.values[result]} * 1"])
            used = set(re.findall(r"\w+", body))
            declared = ", ".join(f"{name}_[{axes}]" for name, axes, *_ in kinds if f"{name}_" in used)
            text = f"norm {_name(function)}({declared}) -> y[M,N] {{ {body} }}"
            return formula(text), result.meta["val"].dtype
        else:
            writer.write(node)
    raise AssertionError("a graph without an output")


def _name(function: Callable[..., Any]) -> str:
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in getattr(function, "__name__", ""))[:32]
    return f"rowwise_{name}"


class _Writer:
    """Writes the operations of a traced graph as lines of a formula."""

    BINARY = {Aten.add.Tensor: "+", Aten.add.Scalar: "+", Aten.sub.Tensor: "-", Aten.sub.Scalar: "-",
              Aten.mul.Tensor: "*", Aten.mul.Scalar: "*", Aten.div.Tensor: "/", Aten.div.Scalar: "/"}
    UNARY = {Aten.rsqrt.default: "rsqrt", Aten.sqrt.default: "sqrt", Aten.exp.default: "exp", Aten.log.default: "log",
             Aten.abs.default: "abs", Aten.sigmoid.default: "sigmoid", Aten.silu.default: "silu",
             Aten.tanh.default: "tanh", Aten.erf.default: "erf"}
    EXTREMES = {Aten.maximum.default: "max", Aten.minimum.default: "min"}
    SAME = {Aten._to_copy.default, Aten.clone.default, Aten.detach.default, Aten.alias.default, Aten.lift_fresh_copy.default}
    REDUCTIONS = {Aten.mean.dim: "row_mean", Aten.sum.dim_IntList: "row_sum"}

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.values: dict[torch.fx.Node, str] = {}
        self.lines: list[str] = []

    def axes(self, node: Any) -> str | None:
        shape = tuple(node.meta["val"].shape)
        return next((axes for axes, each in self.shapes.items() if each == shape), None)

    def refused(self, node: torch.fx.Node, why: str = "is not row-wise") -> InvalidArgument:
        return InvalidArgument(f"rowwise: {node.target}, of shape {tuple(node.meta['val'].shape)}: {why}")

    def operand(self, value: Any, node: torch.fx.Node) -> str:
        if isinstance(value, torch.fx.Node):
            return self.values[value]
        if isinstance(value, (int, float)) and math.isfinite(value):
            return f"({float(value)!r})" if value < 0 else repr(float(value))
        raise self.refused(node, f"{value!r} is no finite number")

    def write(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            raise InvalidArgument(f"rowwise: {node.target}: makes no tensor of floating-point numbers")
        if node.target not in self.SAME and self.axes(node) is None and value.dim() > 0:
            raise self.refused(node)
        text = self.expression(node)
        if node.target in self.SAME:
            self.values[node] = text
            return
        self.values[node] = f"v{len(self.lines)}"
        self.lines.append(f"{self.values[node]} = {text}")

    def expression(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        arguments: Any = node.args
        if target in self.SAME:
            return self.operand(arguments[0], node)
        if target in self.BINARY:
            left, right = (self.operand(each, node) for each in arguments[:2])
            if node.kwargs.get("alpha", 1) != 1:
                right = f"{right} * {self.operand(node.kwargs['alpha'], node)}"
            return f"{left} {self.BINARY[target]} {right}"
        if target in self.UNARY:
            return f"{self.UNARY[target]}({self.operand(arguments[0], node)})"
        if target in self.EXTREMES:
            return f"{self.EXTREMES[target]}({', '.join(self.operand(each, node) for each in arguments)})"
        if target == Aten.neg.default:
            return f"-{self.operand(arguments[0], node)}"
        if target == Aten.reciprocal.default:
            return f"1 / {self.operand(arguments[0], node)}"
        if target == Aten.rsub.Scalar:
            return f"{self.operand(arguments[1], node)} - {self.operand(arguments[0], node)}"
        if target == Aten.pow.Tensor_Scalar and arguments[1] in (2, 3, 0.5, -0.5):
            a = self.operand(arguments[0], node)
            powers = {2: f"{a} * {a}", 3: f"{a} * {a} * {a}", 0.5: f"sqrt({a})", -0.5: f"rsqrt({a})"}
            return powers[arguments[1]]
        if target == Aten.gelu.default:
            name = "gelu_tanh" if node.kwargs.get("approximate", "none") == "tanh" else "gelu"
            return f"{name}({self.operand(arguments[0], node)})"
        if target == Aten.softplus.default and arguments[1:] in ((), (1,), (1, 20)):
            return f"softplus({self.operand(arguments[0], node)})"
        if target in self.REDUCTIONS:
            over, keeps = arguments[1], len(arguments) > 2 and arguments[2]
            last = arguments[0].meta["val"].dim() - 1
            if list(over) not in ([-1], [last]) or not keeps or self.axes(arguments[0]) != "M,N":
                raise self.refused(node, "a mean or sum must be over the last dimension, with keepdim=True")
            return f"{self.REDUCTIONS[target]}({self.operand(arguments[0], node)})"
        raise self.refused(node)
