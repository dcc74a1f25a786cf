# SPDX-License-Identifier: Apache-2.0
"""Computes formulas with torch's operators, for second derivatives, forward-mode derivatives and the transforms of
torch.func. The functions take the same tensors as the kernels and return the same types and shapes."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import normjit
from normjit._evaluation import USUAL, Evaluation
from normjit._library import InvalidArgument
from normjit.torch.formula_checks import DTypes, has_slices, like_of, made_of, types_of, wide_of
from normjit.torch.tracing import columns

Tensors = Sequence[torch.Tensor]


def _compare(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    nans = torch.isnan(a) | torch.isnan(b)
    return torch.where(nans, math.nan, (a > b).to(a.dtype) - (a < b).to(a.dtype))


def _div_or_zero(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))


def _round_e8m0(a: torch.Tensor) -> torch.Tensor:
    half, power = torch.frexp(a.clamp(2.0**-127, 2.0**127))
    exponent = torch.where(half == 0.5, power - 1, power)
    return torch.where(torch.isnan(a), a, torch.ldexp(torch.ones_like(a), exponent))


def _group_max(a: torch.Tensor, columns: float) -> torch.Tensor:
    groups: torch.Tensor = a.unflatten(-1, (-1, int(columns)))
    return groups.amax(-1).repeat_interleave(int(columns), -1)


def _sqrt_or_zero(a: torch.Tensor) -> torch.Tensor:
    return torch.where(a == 0, 0.0, torch.sqrt(torch.where(a == 0, 1.0, a)))


def _rounded(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda a: a.to(dtype).to(a.dtype)


def stored(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounds and saturates to a type as kernels do when they store."""
    if value.dtype == dtype:
        return value
    if dtype == torch.int8:
        return torch.where(torch.isnan(value), 0.0, value).round().clamp(-128, 127).to(dtype)
    if dtype == getattr(torch, "float8_e8m0fnu", None):
        return _round_e8m0(value).to(dtype)
    if dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        return value.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)
    return value.to(dtype)


def _rotate_half(a: torch.Tensor) -> torch.Tensor:
    first, second = a.chunk(2, -1)
    return torch.cat([-second, first], -1)


def _col_sum(a: torch.Tensor, has_slices: bool) -> torch.Tensor:
    rows = range(1 if has_slices else 0, a.dim() - 1)
    return a.sum(tuple(rows), keepdim=has_slices) if rows else a


FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "group_max": _group_max,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "abs": torch.abs, "min": torch.minimum, "max": torch.maximum,
    "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log1p": torch.log1p, "sigmoid": torch.sigmoid, "silu": torch.nn.functional.silu,
    "tanh": torch.tanh, "erf": torch.erf, "softplus": lambda a: torch.logaddexp(a, torch.zeros_like(a)),
    "gelu": torch.nn.functional.gelu, "gelu_tanh": lambda a: torch.nn.functional.gelu(a, approximate="tanh"),
    "round": torch.round, "round_bf16": _rounded(torch.bfloat16), "round_f16": _rounded(torch.float16), "compare": _compare,
    "round_e8m0": _round_e8m0,
    "like": lambda a, b: a.expand(torch.broadcast_shapes(a.shape, b.shape)), "div_or_zero": _div_or_zero,
    "partner": lambda a: a.roll(a.shape[-1] // 2, -1), "rotate_half": _rotate_half,
    "neighbour": lambda a: a.unflatten(-1, (-1, 2)).flip(-1).flatten(-2), "row_mean": lambda a: a.mean(-1, keepdim=True),
    "row_sum": lambda a: a.sum(-1, keepdim=True), "row_max": lambda a: a.amax(-1, keepdim=True), "detach": torch.detach,
    "row_min": lambda a: a.amin(-1, keepdim=True), "relu": torch.relu, "square": torch.square, "pow": torch.pow,
    "clamp": lambda a, low, high: torch.minimum(torch.maximum(a, low), high), "max_abs": lambda a: a.abs().amax() if a.numel() else a.sum(),
    "sqrt_or_zero": _sqrt_or_zero, "row_norm": lambda a: _sqrt_or_zero((a * a).sum(-1, keepdim=True)),
    "where": lambda c, a, b: torch.where(torch.isnan(c), math.nan, torch.where(c > 0, a, b)),
}
def _broadcast(tensor: torch.Tensor, axes: str, like: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in the compute type, in a shape that broadcasts to the matrix."""
    tensor = tensor.to(wide_of(like))
    if axes.endswith("M"):
        return tensor.reshape(*like.shape[:-1], 1)
    if axes.endswith("N") and columns(tensor) not in (0, columns(like)):  # [N/R]
        tensor = tensor.repeat_interleave(columns(like) // columns(tensor), -1)
    if axes == "S,N":
        return tensor.reshape(like.shape[0], *(1 for _ in range(like.dim() - 2)), like.shape[-1])
    return tensor


def forward(text: str, names: Sequence[str], tensors: Tensors, numbers: Mapping[str, float],
            outputs: Sequence[str], dtypes: DTypes = None) -> list[torch.Tensor]:
    """Returns the named outputs of a formula; see made_of()."""
    norm, given, types = normjit.formula(text), dict(zip(names, tensors)), types_of(outputs, dtypes)
    like = like_of(norm, given)
    values: dict[str, Any] = {**USUAL, **{name: float(number) for name, number in numbers.items()}, "N": float(columns(like))}
    values.update((name, _broadcast(given[name], norm.axes(name), like) if name in given else None) for name in norm.inputs)
    functions = {**FUNCTIONS, "col_sum": lambda a: _col_sum(a, has_slices(norm))}
    Evaluation(values, functions, lambda number: like.new_tensor(number, dtype=wide_of(like))).run(norm.text)
    made = []
    for name in outputs:
        value, (shape, made_in) = values[name], made_of(norm, name, given, numbers, types.get(name))
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(f"the output '{name}' needs tensors that are missing")
        if norm.axes(name) == "N" and value.dim() > 1:  # slices share its columns
            value = value.sum(0)
        if norm.run(name):
            value = value[..., :: like.shape[-1] // shape[-1]]
        made.append(stored(value.reshape(shape), made_in))
    return made


def backward(text: str, names: Sequence[str], tensors: Tensors, numbers: Mapping[str, float],
             outputs: Sequence[str]) -> list[torch.Tensor]:
    """Returns the named gradients. `tensors` are inputs, gradients of outputs, and values that the forward pass saved,
    which are computed again."""
    norm, given = normjit.formula(text), dict(zip(names, tensors))
    inputs = [name for name in names if name in norm.inputs]
    above = [name for name in norm.outputs if f"d{name}" in given]
    gradients = [given[f"d{name}"] for name in above]
    gradients = [each.float() if each.dtype.itemsize == 1 else each for each in gradients]
    dtypes = [str(each.dtype).removeprefix("torch.") for each in gradients]
    pull = torch.func.vjp(lambda *leaves: forward(text, inputs, leaves, numbers, above, dtypes),
                          *(given[name] for name in inputs))[1]
    found = dict(zip(inputs, pull(gradients)))
    return [found[name[1:]] for name in outputs]
