# SPDX-License-Identifier: Apache-2.0
"""Measures what share of a copy's bandwidth Inductor's kernels for norms reach on this machine: once for each device,
type and version of torch. The numbers are kept in the folder of Inductor's cache."""
from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import cache_dir

import normjit
from normjit.log import logger
from normjit.torch import graph_times

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = {"cpu": ((512, 768), (4096, 1024)), "cuda": ((2048, 2048), (8192, 4096))}  # sizes that fit in caches, and
                                                                                    # sizes that do not
FILE = "normjit_kernel_shares.json"
HEAD = 128  # columns of the heads that are rotated
Shares = dict[str, list[float]]  # for each kind of kernels that was measured, the share at each shape

_shares: dict[str, Shares] = {}


def share_of(device: torch.device, dtype: torch.dtype, kind: str) -> float:
    """Returns the largest share that kernels of a kind in KERNELS reached on this machine; 1 if it was not measured, which
    counts Inductor's kernels as perfect."""
    found = _known().get(_key(device, torch.bfloat16 if dtype.itemsize == 2 else torch.float32), {})
    return min(max(found.get(kind, [1.0])), 1.0)


def measure(devices: Iterable[torch.device], with_rotations: bool) -> None:
    """Measures the shares that are not known yet. Must not be called while Inductor compiles."""
    for device in devices:
        for dtype in DTYPES if device.type in SHAPES else ():
            known = _known().setdefault(_key(device, dtype), {})
            for kind, kernel in KERNELS.items():
                if kind in known or (kernel.is_rotation and not with_rotations):
                    continue
                shapes = SHAPES[device.type][-1:] if kernel.is_rotation else SHAPES[device.type]
                try:
                    known[kind] = [_share(device, dtype, shape, kernel) for shape in shapes]
                    _keep()
                except Exception as error:  # torch may fail or run out of memory; the numbers are optional
                    logger.warning("Inductor's kernels could not be measured on %s, and count as perfect: %s", device, error)
                    known[kind] = [1.0]


def fingerprint() -> str:
    """Returns the numbers as a text, for the keys of caches."""
    return json.dumps(_known(), sort_keys=True)


def _layer(x: torch.Tensor, r: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x + r
    wide = h.float()
    return h, (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight).to(x.dtype)


def _gradients(x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor) -> tuple[torch.Tensor, ...]:
    d = dy.float()
    y, g = x.float() * rstd, d * weight
    return (rstd * (g - y * (g * y).mean(-1, keepdim=True))).to(x.dtype), (d * y).sum(0).to(x.dtype)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
    heads = x.view(x.shape[0], -1, HEAD)
    wide = heads.float()
    q = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype).transpose(0, 1)
    first, second = q.chunk(2, -1)
    return (q * cos + torch.cat([-second, first], -1) * sin,)


def _rotated_by_angles(x: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Inductor computes the sines and cosines for each head."""
    return _rotated(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class _Kernel(NamedTuple):
    """Kernels that are measured, how many matrices they move, and what they read besides these."""

    function: Callable[..., tuple[torch.Tensor, ...]]
    moved: int
    tensors: Callable[[int, int, torch.dtype], list[torch.Tensor]]
    is_rotation: bool = False


KERNELS = {
    "rows": _Kernel(_layer, 4, lambda rows, cols, dtype: [torch.ones(rows, cols, dtype=dtype), torch.ones(cols, dtype=dtype)]),
    "columns": _Kernel(_gradients, 5, lambda rows, cols, dtype: [torch.ones(rows, cols, dtype=dtype),
                                                                 torch.ones(cols, dtype=dtype), torch.ones(rows, 1)]),
    "rotated": _Kernel(_rotated, 2, lambda rows, cols, dtype: [torch.ones(rows, HEAD, dtype=dtype)] * 2, True),
    "rotated by angles": _Kernel(_rotated_by_angles, 2, lambda rows, cols, dtype: [torch.ones(rows, HEAD)], True)}


def _share(device: torch.device, dtype: torch.dtype, shape: tuple[int, int], kernel: _Kernel) -> float:
    rows, cols = shape
    tensors = [each.to(device) for each in (torch.full((rows, cols), 0.5, dtype=dtype), *kernel.tensors(rows, cols, dtype))]
    seconds = _seconds(kernel.function, tensors) - _call(device)
    is_mixed = device.type == "cuda" and getattr(config.triton, "mix_order_reduction", False) and rows >= 4096
    moved = 3 if kernel.function is _gradients and is_mixed else kernel.moved  # one kernel may compute sums along rows and
                                                                               # over rows
    size = moved * rows * cols * dtype.itemsize
    return size / max(seconds, 1e-9) / graph_times.bandwidth(device, size)


@functools.lru_cache(maxsize=None)
def _call(device: torch.device) -> float:
    """Returns the time of a call that does almost nothing."""
    return _seconds(torch.neg, [torch.ones(2, device=device)])


def _seconds(function: Any, tensors: list[torch.Tensor]) -> float:
    from torch._inductor.compile_fx import compile_fx
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(function)(*tensors)
    quiet = {"post_grad_custom_pre_pass": None, "triton.cudagraphs": False, "max_autotune": False, "cpp_wrapper": False}
    with config.patch(quiet), torch._guards.tracing(None), torch.no_grad():
        compiled: Any = compile_fx(graph, tensors)
        return graph_times.seconds(lambda: compiled(*tensors), tensors[0].device)


@functools.lru_cache(maxsize=None)
def _key(device: torch.device, dtype: torch.dtype) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {torch.get_num_threads()}"
    return f"{name} {dtype} torch {torch.__version__} normjit {normjit.__version__}"


def _known() -> dict[str, Shares]:
    if not _shares:
        _shares.update(_read())
    return _shares


@functools.lru_cache(maxsize=None)
def _read() -> dict[str, Shares]:
    try:
        with open(os.path.join(cache_dir(), FILE)) as source:
            found: dict[str, Shares] = json.load(source)
    except (OSError, ValueError):  # no file was written yet, or not the whole file
        return {}
    return found


def _keep() -> None:
    folder = cache_dir()
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as target:
        json.dump(_shares, target)
    os.replace(target.name, os.path.join(folder, FILE))  # readers see the old file or the new one
