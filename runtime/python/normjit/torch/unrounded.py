# SPDX-License-Identifier: Apache-2.0
"""Tensors that compute in double, whatever their type, to find out what a function computes without its rounding."""
from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Unrounded(torch.Tensor):
    """A tensor that reports some type but holds its numbers in double, as do all tensors computed from it. Code that
    depends on types behaves as it does for the reported type, but its values and gradients are not rounded to that
    type."""

    wide: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, wide: torch.Tensor, dtype: torch.dtype) -> Unrounded:
        made: Unrounded = torch.Tensor._make_wrapper_subclass(
            cls, wide.shape, strides=wide.stride(), dtype=dtype, device=wide.device)
        made.wide = wide.detach()
        return made

    @classmethod
    def __torch_dispatch__(cls, operator: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        given = arguments, named or {}
        changed = {id(each.wide): each for each in pytree.tree_flatten(given)[0] if isinstance(each, Unrounded)}
        rounded_arguments, rounded_named = pytree.tree_map(_rounded, given)
        is_sum_of_8_bits = operator is torch.ops.aten.add.Tensor and all(
            isinstance(each, Unrounded) and each.dtype.itemsize == 1 for each in arguments)
        # Autograd adds the gradients of a tensor that is used twice. torch has no such sum of 8 bits.
        types = rounded_arguments[0] if is_sum_of_8_bits else operator(*rounded_arguments, **rounded_named)
        wide_arguments, wide_named = pytree.tree_map(in_double, given)
        made = operator(*wide_arguments, **wide_named)

        def unrounded(wide: Any, like: Any) -> Any:
            if not isinstance(like, torch.Tensor) or not like.dtype.is_floating_point:
                return wide
            return changed[id(wide)] if id(wide) in changed else Unrounded(wide, like.dtype)

        if isinstance(made, (tuple, list)):
            return type(made)(map(unrounded, made, types))
        return unrounded(made, types)


class UnroundedNumbers(TorchDispatchMode):
    """Keeps numbers from which operations make tensors, such as the second one of torch.where(x > 0, x, 0.1), from
    being rounded to the type of other operands."""

    def __torch_dispatch__(self, operator: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        made = operator(*arguments, **(named or {}))
        if operator is not torch.ops.aten.scalar_tensor.default or not made.dtype.is_floating_point:
            return made
        return Unrounded(operator(*arguments, **{**(named or {}), "dtype": torch.float64}), made.dtype)


def _rounded(value: Any) -> Any:
    return value.wide.to(value.dtype, copy=True) if isinstance(value, Unrounded) else value


def in_double(value: Any) -> Any:
    """Returns a tensor's numbers in double, torch.float64 for a floating-point type, and anything else unchanged."""
    if isinstance(value, Unrounded):
        return value.wide
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype.is_floating_point else value
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value
