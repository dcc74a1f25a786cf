# SPDX-License-Identifier: Apache-2.0
"""Checks the tensors that a formula takes, and gives the shapes and types of its outputs."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch

import normjit
from normjit import _operand
from normjit._library import InvalidArgument, counted
from normjit.formulas import check_run
from normjit.torch.functional import ALL_TYPES, check_tensor, is_shape
from normjit.torch.tracing import unseen

DType = Optional[torch.dtype]
DTypes = Optional[Sequence[str]]  # names of torch's types, because operators cannot take lists of types; "": the usual one
TYPES = {getattr(torch, name): name for name in _operand.NUMPY_CODES if hasattr(torch, name)}  # that kernels store
READ = tuple(dtype for dtype, name in TYPES.items() if name != "float8_e8m0fnu")  # the types that input matrices may have


def axes_of(norm: normjit.Formula, name: str) -> str:
    """Returns the axes of an input or output; "shared" for an [M,N] tensor that all slices share."""
    axes = norm.axes(name)
    return "shared" if axes == "M,N" and has_slices(norm) else axes


def has_slices(norm: normjit.Formula) -> bool:
    return "[S" in norm.text.partition("{")[0]


def like_of(norm: normjit.Formula, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the first matrix, which determines shapes and types. Raises InvalidArgument if there is none."""
    return tensors[_first_matrix(norm, tensors)]


def _first_matrix(norm: normjit.Formula, tensors: Mapping[str, torch.Tensor]) -> str:
    name = norm.first_matrix(tensors)
    if name is None:
        raise InvalidArgument(f"{norm.name}: none of the matrices is given: {', '.join(norm.inputs)}")
    return name


def wide_of(like: torch.Tensor) -> torch.dtype:
    return torch.float64 if like.dtype == torch.float64 else torch.float32


def shapes_of(axes: str, shape: Sequence[int], run: int = 1) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes that a tensor with these axes may have if the first matrix has `shape`. Outputs get the first
    of these shapes. `run` columns share an element."""
    shape = (*shape[:-1], shape[-1] // run)
    if axes.endswith("M"):
        return (shape[:-1], (*shape[:-1], 1))
    if not axes:
        return ((), (1,))
    return ({"M,N": shape, "S,M,N": shape, "shared": shape[1:], "N": shape[-1:], "S,N": (shape[0], shape[-1])}[axes],)


def made_of(norm: normjit.Formula, name: str, given: Mapping[str, torch.Tensor], numbers: Mapping[str, Any],
            dtype: DType) -> tuple[Sequence[int], torch.dtype]:
    """Returns the shape and the type of an output. `dtype` is the type of an output matrix, or of an output for groups of
    columns; None means the usual type."""
    like, axes, run = like_of(norm, given), norm.axes(name), norm.run(name)
    usual = like.dtype if axes.endswith("N") and not run and like.dtype.itemsize > 1 else wide_of(like)
    return shapes_of(axes, like.shape, _given_run(run, numbers))[0], (dtype if axes.endswith("M,N") else None) or usual


def types_of(outputs: Sequence[str], dtypes: DTypes) -> dict[str, torch.dtype]:
    """Returns the types of the outputs by name. Outputs without an entry in `dtypes` have the usual types."""
    return {name: getattr(torch, dtype) for name, dtype in zip(outputs, dtypes or ()) if dtype}


def names_of(norm: normjit.Formula, outputs: Sequence[str], dtypes: Mapping[str, torch.dtype]) -> list[str]:
    """Returns the names of the outputs' types, "" for the usual one. Raises InvalidArgument for what no kernel stores."""
    for name, dtype in dtypes.items():
        if name not in outputs or not norm.axes(name).endswith("M,N"):
            matrices = [each for each in outputs if norm.axes(each).endswith("M,N")]
            raise InvalidArgument(f"dtypes: {name}: is not an output matrix; allowed: {', '.join(matrices) or 'none'}")
        if dtype not in TYPES:
            raise InvalidArgument(f"dtypes: {name}: {dtype}; allowed: {', '.join('torch.' + each for each in TYPES.values())}")
    return [TYPES[dtypes[name]] if name in dtypes else "" for name in outputs]


@unseen
def check_call(text: str, given: Mapping[str, Any]) -> None:
    """Raises InvalidArgument for arguments of a call that do not fit."""
    norm = normjit.formula(text)
    check(norm, {name: given[name] for name in norm.inputs if name in given},
          {name: value for name, value in given.items() if name not in norm.inputs})


def check(norm: normjit.Formula, tensors: Mapping[str, Any], numbers: Mapping[str, Any]) -> None:
    """Raises InvalidArgument for inputs that do not fit."""
    for name in norm.inputs:
        if name not in tensors and name not in norm.optional:
            raise InvalidArgument(f"{name}: is missing; the formula needs it")
    for name, number in numbers.items():
        if name not in norm.numbers:
            raise InvalidArgument(f"{name}: the formula has nothing of this name")
        if not isinstance(number, (int, float)):
            raise InvalidArgument(f"{name}: is {type(number).__name__}; must be a number")
    matrix, first = _first_matrix(norm, tensors), next(iter(tensors))
    like = tensors[matrix]
    for name, tensor in tensors.items():
        is_matrix = norm.axes(name).endswith("M,N") and not norm.run(name)
        check_tensor(name, tensor, first, tensors[first], READ if is_matrix else ALL_TYPES)
    for name, tensor in tensors.items():
        axes = axes_of(norm, name)
        if like.dim() < (2 if has_slices(norm) else 1):
            raise InvalidArgument(f"{name}: [{axes}] beside a matrix of {counted(like.dim(), 'dimension')}")
        if norm.run(name) in numbers:
            check_run(norm.run(name), numbers[norm.run(name)], like.shape[-1], matrix)
        allowed = shapes_of(axes, like.shape, _run_of(norm.run(name), tensor, like, numbers))
        if not any(is_shape(tensor, shape) for shape in allowed):
            raise InvalidArgument(f"{name}: its shape is {tuple(tensor.shape)}; must be "
                                  f"{' or '.join(str(tuple(shape)) for shape in allowed)}")


def _run_of(run: str, tensor: torch.Tensor, like: torch.Tensor, numbers: Mapping[str, Any]) -> int:
    """Returns how many columns share an element, according to the numbers, or else to the tensor's shape."""
    size = tensor.shape[-1] if tensor.dim() else 0
    if not run or run.isdigit() or run in numbers or not size or like.shape[-1] % size:
        return _given_run(run, numbers)
    return like.shape[-1] // size


def _given_run(run: str, numbers: Mapping[str, Any]) -> int:
    """Returns how many columns share an element, according to the text of a run and the numbers; 1 if they do not
    say."""
    return max(int(run if run.isdigit() else numbers.get(run, 1)), 1)
