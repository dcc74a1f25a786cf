# SPDX-License-Identifier: Apache-2.0
"""layer_norm() and rms_norm() as modules that replace torch.nn.LayerNorm and torch.nn.RMSNorm, with the same
arguments, names in a state_dict, and repr."""
from __future__ import annotations

import collections.abc
import operator

import torch

from normjit._library import InvalidArgument, check_finite
from normjit.torch.functional import ALL_TYPES, default_eps, layer_norm, rms_norm
from normjit.torch.tracing import unseen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex, Union

    Shape = Union[SupportsIndex, collections.abc.Iterable[SupportsIndex]]
    Normed = Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm, computed by layer_norm(); forward(input, residual=None). The kernels treat several normalised
    dimensions as one. Without weight and bias, forward() also takes scale= and shift=, [B,N] for an input of [B,T,N]:
    xhat * (scale + 1) + shift.

    main_grad: as in layer_norm(), for one normalised dimension. Raises InvalidArgument, as its forward does."""

    has_backward = can_torch_compile = True  # for Hugging Face's kernels
    main_grad = False  # also serves modules whose class was changed to this one

    def __init__(self, normalized_shape: Shape, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
                 device: torch.device | str | int | None = None, dtype: torch.dtype | None = None, *,
                 main_grad: bool = False) -> None:
        shape = _checked_shape(normalized_shape, main_grad)
        check_finite("eps", eps, least=0)
        super().__init__(shape, eps, elementwise_affine, bias, _checked_device(device), checked_dtype(dtype))
        self.main_grad = main_grad

    def forward(self, input: torch.Tensor, residual: torch.Tensor | None = None,  # type: ignore[override]
                scale: torch.Tensor | None = None, shift: torch.Tensor | None = None) -> Normed:
        weight, bias, offset = self.weight, self.bias, 0.0
        if scale is not None or shift is not None:
            if weight is not None:
                raise InvalidArgument("scale, shift: the module has a weight; make it with elementwise_affine=False")
            if scale is None:
                raise InvalidArgument("shift: is given without a scale")
            weight, bias, offset = scale, shift, 1.0
        shape = self.normalized_shape
        _check_input("input", input, shape)
        if len(shape) > 1:
            input, residual, weight, bias = _flat(len(shape), input, residual, weight, bias)
        y = layer_norm(input, weight, bias, eps=self.eps, weight_offset=offset, residual=residual,
                       main_grad=self.main_grad)
        return _unflat(shape, y)

    def extra_repr(self) -> str:
        return super().extra_repr() + (", main_grad=True" if self.main_grad else "")


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm, computed by rms_norm(); forward(x, residual=None). The kernels treat several normalised
    dimensions as one.

    eps: None is the machine epsilon of f32, or of f64 if x is f64
    weight_offset: 1 for a zero-centred weight, which then starts as zeros
    main_grad: as in rms_norm(), for one normalised dimension

    Raises InvalidArgument, as its forward does."""

    has_backward = can_torch_compile = True
    main_grad = False
    weight_offset = 0.0

    def __init__(self, normalized_shape: Shape, eps: float | None = None, elementwise_affine: bool = True,
                 device: torch.device | str | int | None = None, dtype: torch.dtype | None = None, *,
                 weight_offset: float = 0.0, main_grad: bool = False) -> None:
        shape = _checked_shape(normalized_shape, main_grad)
        if eps is not None:
            check_finite("eps", eps, least=0)
        check_finite("weight_offset", weight_offset)
        if weight_offset and not elementwise_affine:
            raise InvalidArgument(f"weight_offset: {weight_offset}; must be 0 without a weight")
        self.weight_offset = weight_offset  # must be set before the weight is filled
        super().__init__(shape, eps, elementwise_affine, _checked_device(device), checked_dtype(dtype))
        self.main_grad = main_grad

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            torch.nn.init.constant_(self.weight, 1.0 - self.weight_offset)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Normed:  # type: ignore[override]
        weight, shape = self.weight, self.normalized_shape
        _check_input("x", x, shape)
        eps = self.eps
        if eps is None:
            eps = default_eps(*(t.dtype for t in (x, residual) if isinstance(t, torch.Tensor)))
        if len(shape) > 1:
            x, residual, weight = _flat(len(shape), x, residual, weight)
        y = rms_norm(x, weight, eps=eps, weight_offset=self.weight_offset, residual=residual, main_grad=self.main_grad)
        return _unflat(shape, y)

    def extra_repr(self) -> str:
        own = f", weight_offset={self.weight_offset}" if self.weight_offset else ""
        return super().extra_repr() + own + (", main_grad=True" if self.main_grad else "")


def _refuse_script(self: torch.nn.Module) -> Any:
    """torch.jit.script() calls this. Without it, its message would be about a line of this file."""
    kind = type(self).__name__
    raise InvalidArgument(f"torch.jit.script: cannot compile normjit.torch.{kind}; use torch.jit.trace or torch.export, or "
                          f"torch.nn.{kind}, which has the same state_dict")


def _checked_shape(normalized_shape: Any, main_grad: bool) -> tuple[int, ...]:
    """Returns a tuple of int."""
    try:
        is_one = not isinstance(normalized_shape, collections.abc.Iterable)
        shape = tuple(operator.index(size) for size in ([normalized_shape] if is_one else normalized_shape))
    except TypeError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InvalidArgument(f"normalized_shape: {normalized_shape!r}; must be an int of at least 1, or one or several of "
                              "them")
    if main_grad and len(shape) > 1:
        raise InvalidArgument(f"main_grad: normalized_shape is {shape}; must be one dimension")
    return shape


def checked_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    """Returns the type, or None if it is None. Raises InvalidArgument for a type that kernels do not have."""
    if dtype is not None and dtype not in ALL_TYPES:
        raise InvalidArgument(f"dtype: {dtype!r}; allowed: None, {', '.join(map(str, ALL_TYPES))}")
    return dtype


def _checked_device(device: torch.device | str | int | None) -> torch.device | None:
    try:
        return None if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidArgument(f"device: {device!r}; must be one of torch's: {reason}") from None


@unseen
def _check_input(name: str, x: torch.Tensor, shape: tuple[int, ...]) -> None:
    if isinstance(x, torch.Tensor) and not x.is_nested and x.shape[-len(shape):] != shape:  # functional.py checks more
        raise InvalidArgument(f"{name}: its shape is {tuple(x.shape)}; must end in {tuple(shape)}")


def _flat(dimensions: int, *tensors: Any) -> list[Any]:
    """Returns each tensor with its last dimensions merged into one. A tensor with fewer dimensions stays as it is, so
    that the function refuses it."""
    return [t.flatten(-dimensions) if isinstance(t, torch.Tensor) and t.dim() >= dimensions else t for t in tensors]


def _unflat(shape: tuple[int, ...], y: Normed) -> Normed:
    if len(shape) == 1:
        return y
    if isinstance(y, tuple):
        return y[0].unflatten(-1, shape), y[1].unflatten(-1, shape)
    flat: torch.Tensor = y.unflatten(-1, shape)
    return flat


LayerNorm.__prepare_scriptable__ = RMSNorm.__prepare_scriptable__ = _refuse_script  # type: ignore[attr-defined]
