# SPDX-License-Identifier: Apache-2.0
"""What torch does with a call: whether it compiles, exports, transforms or traces the code."""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def is_looked_into() -> bool:
    """True if torch needs to see its own operators: in transforms, forward-mode derivatives, traces and exported
    programs. An exported program would keep only the forward pass of an autograd.Function, without a gradient."""
    if torch.compiler.is_compiling():
        return _is_exporting() or torch.autograd.forward_ad._current_level >= 0 or _has_transforms()
    return (torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
            or torch._C._get_tracing_state() is not None)


def is_transformed() -> bool:
    """True if the code that torch.compile traces is inside a forward-mode derivative, or a transform of torch.func
    other than vmap(). Their tangents do not pass through an operator of normjit, but become 0 without an error."""
    return torch.autograd.forward_ad._current_level >= 0 or _has_derivatives()


def is_for_onnx() -> bool:
    """True inside torch.onnx.export(), whose programs run without normjit."""
    return "torch.onnx._internal.exporter._flags" in sys.modules and torch.onnx.is_in_onnx_export()  # imports many modules


def unseen(function: Callable[..., Result]) -> Callable[..., Result]:
    """Hides what a function does from torch.jit.trace(). Sizes are numbers for it; elsewhere in a trace they are tensors,
    and each comparison of two warns that the trace may be wrong."""
    @functools.wraps(function)
    def called(*arguments: Any) -> Result:
        state = None if torch.compiler.is_compiling() else torch._C._get_tracing_state()
        if state is None:
            return function(*arguments)
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        try:
            return function(*arguments)
        finally:
            torch._C._set_tracing_state(state)  # type: ignore[attr-defined]

    return called


@unseen
def columns(tensor: torch.Tensor) -> int:
    return tensor.shape[-1]


def named_once(*tensors: torch.Tensor | None) -> Sequence[Any]:
    """Returns the tensors. If one is given twice, the second is a view of it, because Dynamo allows a tensor only once
    among the arguments of an autograd.Function."""
    return [t if t is None or all([t is not each for each in tensors[:i]]) else t.view_as(t) for i, t in enumerate(tensors)]


def as_they_are(*tensors: torch.Tensor | None) -> Sequence[Any]:
    """Returns tensors that an autograd.Function can save. In compiled code these are copies, because nothing there
    notices that a saved tensor is overwritten before the backward pass. Torch removes copies of tensors that are
    not."""
    return [None if t is None else t.clone() for t in tensors] if torch.compiler.is_compiling() else tensors


def _is_exporting() -> bool:
    """True inside torch.export. Called while torch.compile traces, because its own answer in torch 2.10 and 2.11 is
    True in everything that it traces."""
    return torch.compiler.is_exporting()


def _has_transforms() -> bool:
    return bool(torch._C._functorch.get_interpreter_stack())


def _has_derivatives() -> bool:
    vmap = torch._C._functorch.TransformType.Vmap
    return any(each.key() != vmap for each in torch._C._functorch.get_interpreter_stack() or ())


# See operators.serves().
_is_exporting._dynamo_marked_constant = is_for_onnx._dynamo_marked_constant = True  # type: ignore[attr-defined]
_has_transforms._dynamo_marked_constant = _has_derivatives._dynamo_marked_constant = True  # type: ignore[attr-defined]
