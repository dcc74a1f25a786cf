# SPDX-License-Identifier: Apache-2.0
"""Row-wise functions of torch code as formulas: a function is traced, and the graph written as a formula."""
from __future__ import annotations

import collections
import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from normjit._library import InvalidArgument
from normjit.torch import composition, probes
from normjit.torch.formulas import Norm, call, formula

Aten = torch.ops.aten
TOLERANCE = 0.05  # of gradients in 16-bit types, in the 2-norm


def rowwise(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns the function with normjit's kernels for its forward and backward pass.

        @normjit.torch.rowwise
        def gated(x, z, weight):
            h = x.float()
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
            return (weight * h * torch.nn.functional.silu(z.float())).to(x.dtype)

    `function` computes a tensor of x's shape from x, its first tensor, of [..., N], from others of this shape, of [N]
    and of [..., 1], by arithmetic, means and sums over the last dimension, and functions such as rsqrt, exp, sigmoid,
    silu and tanh. It is traced once for each kind of arguments: those that are no tensors are constants of the trace,
    and what else the code reads, such as global variables, is read then. Values between are not rounded: the result is
    nearer to double precision than the function's own in a 16-bit type. Its type is the function's own for these
    arguments without autocast. All else is as in formula(). Raises normjit.InvalidArgument with the operation that is
    not row-wise."""
    return _Rowwise(function)


class _Rowwise:
    """A function as a formula for each kind of arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        parameters = inspect.signature(function).parameters.values()
        self._parameters = [each.name for each in parameters]
        for each in parameters:
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise InvalidArgument(f"rowwise: {_shown(function)} has a parameter {each}; each must have a name of its own")
        self._positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}

    def __repr__(self) -> str:
        return f"normjit.torch.rowwise({_shown(self.__wrapped__)})"

    def __reduce__(self) -> Any:
        function = self.__wrapped__
        named: Any = sys.modules.get(function.__module__)
        for name in function.__qualname__.split("."):
            named = getattr(named, name, None)
        if named is self:  # a decorated function: as functions are pickled
            return function.__qualname__
        return rowwise, (function,)

    def __deepcopy__(self, memo: Any) -> _Rowwise:
        return self

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *arguments: Any, **named: Any) -> torch.Tensor:
        bound = self._bound(arguments, named)
        given = {name: value for name, value in bound.items() if isinstance(value, torch.Tensor)}
        if not given:
            raise InvalidArgument(f"{_shown(self.__wrapped__)}: no tensor is given")
        first = next(iter(given.values()))
        kinds = tuple((name, _axes(name, value, first), value.dtype, value.dim()) for name, value in given.items())
        others = tuple((name, _constant(value)) for name, value in bound.items() if name not in given)
        dtype, inputs, text = _plan(self, kinds, others, _constant(first.shape[-1])).split(" ", 2)
        tensors = list(given.values())
        used = {name: tensors[int(name.rpartition("_")[2])] for name in inputs.split(",")}
        result: torch.Tensor = call(text, used, getattr(torch, dtype))
        return result

    def _bound(self, arguments: Any, named: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments by the names of their parameters, in the order of these."""
        positional = dict(zip(self._positional, arguments))
        bound = {**self._defaults, **positional, **named}
        fit = len(positional) == len(arguments) and not any([name in named for name in positional])
        if not fit or len(bound) != len(self._parameters) or not all([name in bound for name in self._parameters]):
            inspect.signature(self.__wrapped__).bind(*arguments, **named)  # says what is wrong
        return {name: bound[name] for name in self._parameters}


def _constant(value: Any) -> Any:
    """Returns a number that torch.compile may hold as a symbol as what it is now."""
    is_number = isinstance(value, (int, float)) and torch.compiler.is_compiling()
    return torch.fx.experimental.symbolic_shapes.guard_scalar(value) if is_number else value


def _shown(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))


def _axes(name: str, tensor: torch.Tensor, first: torch.Tensor) -> str:
    if tensor.shape == first.shape:
        return "M,N"
    if tensor.shape == first.shape[-1:]:
        return "N"
    if tensor.shape == (*first.shape[:-1], 1):
        return "M"
    raise InvalidArgument(f"{name}: its shape is {tuple(tensor.shape)}; must be {tuple(first.shape)}, "
                          f"{(first.shape[-1],)} or {(*first.shape[:-1], 1)}")


def _plan(of: _Rowwise, kinds: Any, others: Any, cols: int) -> str:
    """Returns the type of the result and the formula of a function for arguments of these kinds."""
    try:
        hash(others)
    except TypeError as error:
        raise InvalidArgument(f"{_shown(of.__wrapped__)}: {error}: arguments that are no tensors must be constants") from None
    return _traced(of.__wrapped__, kinds, others, _told_apart([value for _, value in others]), cols)


def _told_apart(value: Any) -> Any:
    """Returns what differs for equal constants that code can tell apart: True, 1 and 1.0, or 0.0 and -0.0."""
    if isinstance(value, (tuple, list)):
        return type(value), *map(_told_apart, value)
    return type(value), repr(value) if isinstance(value, (float, complex)) else None


_plan._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=256)
def _traced(function: Callable[..., Any], kinds: tuple[tuple[str, str, torch.dtype, int], ...],
            others: tuple[tuple[str, Any], ...], told_apart: Any, cols: int) -> str:
    dimensions = kinds[0][3]
    shapes = {"M,N": (3,) * (dimensions - 1) + (cols,), "N": (cols,), "M": (3,) * (dimensions - 1) + (1,)}
    made: str = probes.alone(_trace, function, kinds, others, shapes)
    return made


def _trace(function: Callable[..., Any], kinds: Any, others: Any, shapes: Mapping[str, tuple[int, ...]]) -> str:
    from torch.fx.experimental.proxy_tensor import make_fx

    signature = inspect.signature(function)

    def of_tensors(*tensors: torch.Tensor) -> Any:
        values = {**{name: tensor for (name, *_), tensor in zip(kinds, tensors)}, **dict(others)}
        bound = inspect.BoundArguments(signature, collections.OrderedDict(values))
        return function(*bound.args, **bound.kwargs)

    graph = make_fx(of_tensors)(*(torch.empty(shapes[axes], dtype=dtype, device="meta") for _, axes, dtype, _ in kinds))
    text, dtype = _text(function, graph, kinds, shapes)
    _check_gradients(function, of_tensors, formula(text), kinds, shapes)
    return f"{str(dtype).rpartition('.')[2]} {','.join(formula(text).formula.inputs)} {formula(text).text}"


def _inputs(kinds: Any) -> dict[str, str]:
    """Returns the axes of tensors by their names in a formula, which are those of the parameters and a number: so no
    two are the same, nor is one the name of a value or of another's gradient."""
    return {f"{_letters(name)}_{i}": axes for i, (name, axes, *_) in enumerate(kinds)}


def _letters(name: str) -> str:
    """Returns a name of Python's as a formula may have it."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in name)[:32]


def _text(function: Callable[..., Any], graph: torch.fx.GraphModule, kinds: Any,
          shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, torch.dtype]:
    """Returns a graph as a formula, and the type of its result."""
    writer = _Writer(shapes)
    inputs = _inputs(kinds)
    names = iter(inputs)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            writer.values[node] = next(names)
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, torch.fx.Node) or writer.axes(result) != "M,N":
                raise InvalidArgument(f"{_shown(function)}: its result must be one tensor of the shape of {kinds[0][0]}")
            body = "; ".join([*writer.lines, f"y = {writer.values[result]} * 1"])
            used = set(re.findall(r"\w+", body))
            declared = ", ".join(f"{name}[{axes}]" for name, axes in inputs.items() if name in used)
            name = f"rowwise_{_letters(getattr(function, '__name__', ''))}"
            return f"norm {name}({declared}) -> y[M,N] {{ {body} }}", result.meta["val"].dtype
        else:
            writer.write(node)
    raise AssertionError("a graph without an output")


def _check_gradients(function: Callable[..., Any], of_tensors: Callable[..., Any], norm: Norm, kinds: Any,
                     shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a function whose gradients are not those of what it computes, as where code stands under no_grad()."""
    generator = torch.Generator().manual_seed(0)
    leaves = [(torch.rand(shapes[axes], generator=generator) + 0.5).to(dtype).requires_grad_() for _, axes, dtype, _ in kinds]
    y = of_tensors(*leaves)
    dy = torch.randn(y.shape, generator=generator)
    own = torch.autograd.grad(y, leaves, dy.to(y.dtype), allow_unused=True) if y.requires_grad else [None for _ in leaves]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    given = {name: leaf for name, leaf in zip(_inputs(kinds), wide) if name in norm.formula.inputs}
    (derived_y,) = composition.forward(norm.text, list(given), list(given.values()), {}, ["y"])
    derived = torch.autograd.grad(derived_y, wide, dy.double(), allow_unused=True)
    for (name, *_), one, other, like in zip(kinds, own, derived, wide):
        one, other = (torch.zeros_like(like) if each is None else each.double() for each in (one, other))
        if float((one - other).norm()) > TOLERANCE * (float(other.norm()) + float(dy.norm())):
            raise InvalidArgument(f"{_shown(function)}: its gradient of {name} is another than that of what it computes; "
                                  "detach(), no_grad() and autograd.Function have no place in a row-wise function")


class _Writer:
    """Writes the operations of a traced graph as lines of a formula."""

    BINARY = {Aten.add.Tensor: "+", Aten.add.Scalar: "+", Aten.sub.Tensor: "-", Aten.sub.Scalar: "-", Aten.rsub.Scalar: "-",
              Aten.mul.Tensor: "*", Aten.mul.Scalar: "*", Aten.div.Tensor: "/", Aten.div.Scalar: "/"}
    UNARY = {Aten.rsqrt.default: "rsqrt", Aten.sqrt.default: "sqrt", Aten.exp.default: "exp", Aten.log.default: "log",
             Aten.abs.default: "abs", Aten.sigmoid.default: "sigmoid", Aten.silu.default: "silu",
             Aten.tanh.default: "tanh", Aten.erf.default: "erf"}
    EXTREMES = {Aten.maximum.default: "max", Aten.minimum.default: "min"}
    SAME = {Aten._to_copy.default, Aten.clone.default, Aten.alias.default, Aten.lift_fresh_copy.default,
            Aten.detach.default}  # which some versions of torch record; _check_gradients() refuses it
    REDUCTIONS = {Aten.mean.dim: "row_mean", Aten.sum.dim_IntList: "row_sum", Aten.amax.default: "row_max"}
    SOFTMAX = {Aten._softmax.default: "{e} / row_sum({e})", Aten._log_softmax.default: "{a} - log(row_sum({e}))"}

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
        self.values[node] = self.line(text)

    def expression(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        arguments: Any = node.args
        if target in self.SAME:
            return self.operand(arguments[0], node)
        if target in self.BINARY:
            left, right = (self.operand(each, node) for each in arguments[:2])
            if target == Aten.rsub.Scalar:
                left, right = right, left
            alpha = arguments[2] if len(arguments) > 2 else node.kwargs.get("alpha", 1)
            if alpha != 1:
                right = f"{right} * {self.operand(alpha, node)}"
            return f"{left} {self.BINARY[target]} {right}"
        if target in self.UNARY:
            return f"{self.UNARY[target]}({self.operand(arguments[0], node)})"
        if target in self.EXTREMES:
            return f"{self.EXTREMES[target]}({', '.join(self.operand(each, node) for each in arguments)})"
        if target == Aten.neg.default:
            return f"-{self.operand(arguments[0], node)}"
        if target == Aten.reciprocal.default:
            return f"1 / {self.operand(arguments[0], node)}"
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
                raise self.refused(node, "a mean, sum or maximum must be over the last dimension, with keepdim=True")
            return f"{self.REDUCTIONS[target]}({self.operand(arguments[0], node)})"
        if target in self.SOFTMAX:
            if arguments[1] not in (-1, node.meta["val"].dim() - 1) or self.axes(arguments[0]) != "M,N":
                raise self.refused(node, "a softmax must be over the last dimension")
            a = self.operand(arguments[0], node)
            a = self.line(f"{a} - detach(row_max({a}))")
            return self.SOFTMAX[target].format(a=a, e=self.line(f"exp({a})"))
        if target == Aten.roll.default:
            columns = node.meta["val"].shape[-1]
            if list(arguments[2]) not in ([-1], [node.meta["val"].dim() - 1]) or 2 * abs(arguments[1][0]) != columns:
                raise self.refused(node, "a row can be rolled by a half of it only")
            return f"partner({self.operand(arguments[0], node)})"
        raise self.refused(node)

    def line(self, text: str) -> str:
        """Writes a value, and returns its name."""
        self.lines.append(f"v{len(self.lines)} = {text}")
        return f"v{len(self.lines) - 1}"
