# SPDX-License-Identifier: Apache-2.0
"""Preparations for full speed: keeping memory, and making kernels in advance."""
from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from normjit._library import Error, InvalidArgument, Unavailable
from normjit.torch.modules import LayerNorm, RMSNorm, checked_dtype
from normjit.torch.recognition import MARK, check_model, is_patched, look_at, parameters_of_norm

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # constants of malloc.h
INT_MAX = 2**31 - 1
TOP_PAD = 256 << 20
MANY_ROWS, MANY_ELEMENTS = 8192, 1 << 24


def keep_host_memory() -> None:
    """Makes glibc keep the memory of freed tensors for new ones, in this process and from now on. Otherwise it returns
    blocks of more than 32 MB to the system each time, and page faults take most of the time of a CPU operator with
    such a result. The process then holds the most memory that it has ever needed. Raises Unavailable if malloc is
    not glibc's."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version") or not hasattr(libc, "mallopt"):
        raise Unavailable("keep_host_memory: this process's malloc is not glibc's")
    for parameter, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, INT_MAX), (M_TOP_PAD, TOP_PAD)):
        if libc.mallopt(parameter, value) != 1:
            raise Error(f"keep_host_memory: mallopt({parameter}, {value}) failed")


def prepare(model: torch.nn.Module, dtype: torch.dtype | None = None, residual: bool = False,
            rows: int | Sequence[int] | None = None) -> int:
    """Makes the kernels of a model's norms, for training and for inference, by passing rows of zeros through each norm.
    Use it before a CUDA graph is captured, because a capture cannot make kernels, or so that no step has to wait for
    them. Call it after enable() and patch(), with the types of the training: `dtype` is the type of the norms'
    inputs, and None means the type of their weights; with `residual`, normjit's modules are also called with a
    residual. `rows` says how many rows the inputs will have, such as batch times sequence, or gives several such
    numbers. A kernel takes any number, but is fastest for about as many as it was made for. None means many, up to
    16 million elements. Returns the number of modules. Raises InvalidArgument if there is none."""
    check_model(model)
    dtype = checked_dtype(dtype)
    counts = list(rows) if isinstance(rows, Sequence) else [rows]
    for count in counts:
        if count is not None and (not isinstance(count, int) or count < 1):
            raise InvalidArgument(f"rows: {count!r}; must be a number of at least 1, or several")
    modules = [m for m in model.modules() if is_patched(m) or isinstance(m, (torch.nn.LayerNorm, LayerNorm, RMSNorm))
               or type(m) is torch.nn.RMSNorm]
    modules = [m for m in modules if parameters_of_norm(m)[0] is not None]
    if not modules:
        raise InvalidArgument("prepare: the model has no norm that normjit knows; call patch() before")
    known: dict[Any, Any] = {}
    calls = {module: _call_with_rows(module, known) for module in modules}
    for module, count in itertools.product(modules, counts):
        weight = parameters_of_norm(module)[0]
        count = count or max(min(MANY_ROWS, MANY_ELEMENTS // weight.numel()), 1)
        x = torch.zeros(count, *weight.shape, dtype=dtype or weight.dtype, device=weight.device, requires_grad=True)
        norms = vars(module)[MARK] if is_patched(module) else None
        if norms is None or norms.norm is not None:
            _pass_through(module, calls[module], x)
        if norms is not None and norms.gated is not None:
            _pass_through(module, module, x, x.detach().clone().requires_grad_())
        if residual and isinstance(module, (LayerNorm, RMSNorm)):
            _pass_through(module, module, x, residual=x)
    return len(modules)


def _call_with_rows(module: torch.nn.Module, known: dict[Any, Any]) -> Callable[..., Any]:
    """Returns the function that computes a norm for rows. If the forward of a LayerNorm takes something else, such as
    images in timm's LayerNorm2d, this is torch's forward."""
    if (not isinstance(module, torch.nn.LayerNorm) or isinstance(module, LayerNorm) or is_patched(module)
            or type(module).forward is torch.nn.LayerNorm.forward or look_at("", module, known)[1] is not None):
        return module
    return functools.partial(torch.nn.LayerNorm.forward, module)


def _pass_through(module: torch.nn.Module, call: Callable[..., Any], *inputs: torch.Tensor,
                  **residual: torch.Tensor) -> None:
    wanted = [*inputs, *(p for p in module.parameters(recurse=False) if p.requires_grad)]
    with torch.enable_grad():
        made = call(*inputs, **residual)
        torch.autograd.grad(sum(t.sum() for t in (made if residual else (made,))), wanted)
    with torch.no_grad():
        call(*inputs, **residual)
