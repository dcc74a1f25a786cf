# SPDX-License-Identifier: Apache-2.0
"""Computes formulas with jax.numpy, because JAX can differentiate that further. The functions take the arrays that
kernels take, by name, and `results` as {name: (a tensor of formulas.py, shape, type)}. Arrays keep all their dimensions,
because JAX may be configured to refuse shapes of different lengths."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from normjit import formulas
from normjit._evaluation import USUAL, Evaluation

Arrays = Mapping[str, Any]
Results = Mapping[str, tuple[Any, tuple[int, ...], Any]]


def _compare(a: Any, b: Any) -> Any:
    return jnp.where(jnp.isnan(a) | jnp.isnan(b), jnp.nan, (a > b).astype(a.dtype) - (a < b).astype(a.dtype))


def _div_or_zero(a: Any, b: Any) -> Any:
    return jnp.where(b == 0, 0.0, a / jnp.where(b == 0, 1.0, b))


def _abs(a: Any) -> Any:
    return jnp.where(a == 0, 0.0, jnp.abs(a))  # for JAX, the gradient at 0 is 1


def _sqrt_or_zero(a: Any) -> Any:
    return jnp.where(a == 0, 0.0, jnp.sqrt(jnp.where(a == 0, 1.0, a)))


def _round_e8m0(a: Any) -> Any:
    half, power = jnp.frexp(jax.lax.stop_gradient(jnp.clip(a, 2.0**-127, 2.0**127)))
    return jnp.where(jnp.isnan(a), a, jnp.ldexp(jnp.ones_like(a), jnp.where(half == 0.5, power - 1, power)))


def _group_max(a: Any, columns: float) -> Any:
    groups = a.reshape(*a.shape[:-1], -1, int(columns))
    return jnp.repeat(groups.max(-1), int(columns), axis=-1)


def _power(a: Any, exponent: float) -> Any:
    return a ** (int(exponent) if exponent == int(exponent) else exponent)


def _rotate_half(a: Any) -> Any:
    first, second = jnp.split(a, 2, -1)
    return jnp.concatenate([-second, first], -1)


def _neighbour(a: Any) -> Any:
    return a.reshape(*a.shape[:-1], -1, 2)[..., ::-1].reshape(a.shape)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": jnp.sqrt, "rsqrt": jax.lax.rsqrt, "abs": _abs, "min": jnp.minimum, "max": jnp.maximum, "exp": jnp.exp, "exp2": jnp.exp2,
    "log": jnp.log, "log1p": jnp.log1p, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu, "tanh": jnp.tanh, "erf": jax.lax.erf,
    "softplus": jax.nn.softplus, "gelu": lambda a: jax.nn.gelu(a, approximate=False), "gelu_tanh": jax.nn.gelu, "round": jnp.round,
    "round_bf16": lambda a: jax.lax.reduce_precision(a, 8, 7), "round_f16": lambda a: jax.lax.reduce_precision(a, 5, 10),
    "round_e8m0": _round_e8m0, "compare": _compare, "div_or_zero": _div_or_zero, "sqrt_or_zero": _sqrt_or_zero,
    "detach": jax.lax.stop_gradient, "like": lambda a, b: jnp.broadcast_to(a, jnp.broadcast_shapes(a.shape, b.shape)), "group_max": _group_max,
    "partner": lambda a: jnp.roll(a, a.shape[-1] // 2, -1), "rotate_half": _rotate_half, "neighbour": _neighbour,
    "row_mean": lambda a: a.mean(-1, keepdims=True), "row_sum": lambda a: a.sum(-1, keepdims=True),
    "row_max": lambda a: a.max(-1, keepdims=True), "row_min": lambda a: a.min(-1, keepdims=True),
    "row_norm": lambda a: _sqrt_or_zero((a * a).sum(-1, keepdims=True)), "relu": jax.nn.relu, "square": jnp.square, "pow": _power,
    "clamp": lambda a, low, high: jnp.minimum(jnp.maximum(a, low), high), "max_abs": lambda a: _abs(a).max(),
    "where": lambda c, a, b: jnp.where(jnp.isnan(c), jnp.nan, jnp.where(c > 0, a, b)),
}


def _stored(value: Any, dtype: Any) -> Any:
    """Rounds and saturates to a type as kernels do when they store."""
    if dtype == jnp.int8:
        return jnp.clip(jnp.round(jnp.where(jnp.isnan(value), 0.0, value)), -128, 127).astype(dtype)
    if jnp.dtype(dtype).name == "float8_e8m0fnu":
        return _round_e8m0(value).astype(dtype)
    most = float(jnp.finfo(dtype).max)
    return (jnp.clip(value, -most, most) if jnp.dtype(dtype).itemsize == 1 else value).astype(dtype)


def compute_type(array: Any) -> Any:
    """Returns the type in which kernels for an array compute."""
    return jnp.float64 if array.dtype == jnp.float64 else jnp.float32


def _whole(array: Any, tensor: Any, like: Any) -> Any:
    """Returns an array in the compute type, with as many dimensions as the matrix."""
    array = array.astype(compute_type(like))
    if not tensor.axes:
        return array.reshape(())
    if tensor.axes.endswith("M"):
        return array.reshape(*like.shape[:-1], 1)
    if array.shape[-1] != like.shape[-1]:  # [N/R]
        array = jnp.repeat(array, like.shape[-1] // array.shape[-1], axis=-1)
    ones = (1,) * (like.ndim - 2)
    if tensor.axes == "S,N":
        return array.reshape(like.shape[0], *ones, like.shape[-1])
    if tensor.axes == "N":
        return array.reshape(*ones, 1, like.shape[-1])
    return array.reshape(1, *like.shape[1:]) if tensor.is_shared else array


def forward(norm: formulas.Formula, given: Arrays, numbers: Mapping[str, float], results: Results) -> tuple[Any, ...]:
    """Returns the outputs of a formula."""
    first = norm.first_matrix(given)
    assert first is not None
    like = given[first]
    values = {**USUAL, **numbers, "N": float(like.shape[-1])}
    whole: dict[str, Any] = {name: _whole(given[name], tensor, like) if name in given else None for name, tensor in norm._inputs.items()}
    wide, rows = whole[first].dtype, tuple(range(1 if norm._has_slices else 0, like.ndim - 1))
    functions = {**FUNCTIONS, "col_sum": lambda a: a.sum(rows, keepdims=True)}
    evaluation = Evaluation({**values, **whole}, functions, lambda number: jnp.asarray(number, wide))
    evaluation.run(norm.text)

    def made(name: str, tensor: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        value = evaluation.values[name]
        if tensor.axes == "N" and norm._has_slices:
            value = value.sum(0)  # slices share its columns
        if tensor.run:
            value = value[..., :: like.shape[-1] // shape[-1]]
        return _stored(value.reshape(shape), dtype)

    return tuple(made(name, *result) for name, result in results.items())


def backward(norm: formulas.Formula, given: Arrays, numbers: Mapping[str, float], results: Results) -> tuple[Any, ...]:
    """Returns gradients of inputs, from inputs and the gradients of outputs."""
    wanted = [name[1:] for name in results]
    above = {name: given[f"d{name}"] for name in norm.outputs if f"d{name}" in given}
    outputs = {name: (norm._outputs[name], gradient.shape, gradient.dtype) for name, gradient in above.items()}

    def outputs_of(*leaves: Any) -> tuple[Any, ...]:
        return forward(norm, {**given, **dict(zip(wanted, leaves))}, numbers, outputs)

    pull = jax.vjp(outputs_of, *(given[name] for name in wanted))[1]
    return tuple(gradient.astype(dtype) for gradient, (_, _, dtype) in zip(pull(tuple(above.values())), results.values()))
