# SPDX-License-Identifier: Apache-2.0
"""Measures what share of a copy's bandwidth Inductor's kernels for norms reach on this machine: once for each device,
type and version of torch. The numbers are kept in the folder of Inductor's cache."""
from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Iterable
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import cache_dir

import normjit
from normjit.log import logger
from normjit.torch import graph_times

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = {"cpu": ((512, 768), (4096, 1024)), "cuda": ((2048, 2048), (8192, 4096))}  # sizes that fit in caches, and
                                                                                    # sizes that do not
FILE = "normjit_shares.json"
Shares = list[list[float]]  # for each shape: the share of kernels without sums over rows, and the share of kernels with
                            # them

_shares: dict[str, Shares] = {}


def share_of(device: torch.device, dtype: torch.dtype, with_columns: bool) -> float:
    """Returns the largest share that was measured on this machine; 1 if none was, which counts Inductor's kernels as
    perfect."""
    found = _known().get(_key(device, torch.bfloat16 if dtype.itemsize == 2 else torch.float32))
    return 1.0 if found is None else min(max(shares[with_columns] for shares in found), 1.0)


def measure(devices: Iterable[torch.device]) -> None:
    """Measures the shares that are not known yet. Must not be called while Inductor compiles."""
    for device in devices:
        for dtype in DTYPES:
            if device.type in SHAPES and _key(device, dtype) not in _known():
                try:
                    found = [[_share(device, dtype, shape, with_columns) for with_columns in (False, True)]
                             for shape in SHAPES[device.type]]
                except Exception as error:  # torch may fail or run out of memory; the numbers are optional
                    logger.warning("Inductor's kernels could not be measured on %s, and count as perfect: %s", device, error)
                    _shares[_key(device, dtype)] = [[1.0, 1.0]]
                    continue
                _shares[_key(device, dtype)] = found
                _keep()


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


MOVED = (4, 5)  # how many matrices the kernels of _layer and _gradients move


def _share(device: torch.device, dtype: torch.dtype, shape: tuple[int, int], with_columns: bool) -> float:
    rows, cols = shape
    tensors = [torch.full((rows, cols), 0.5, dtype=dtype, device=device) for _ in range(2)]
    tensors.append(torch.ones(cols, dtype=dtype, device=device))
    if with_columns:
        tensors.append(torch.ones(rows, 1, device=device))
    seconds = _seconds(_gradients if with_columns else _layer, tensors) - _call(device)
    is_mixed = device.type == "cuda" and getattr(config.triton, "mix_order_reduction", False) and rows >= 4096
    moved = 3 if with_columns and is_mixed else MOVED[with_columns]  # one kernel may compute sums along rows and over
                                                                     # rows
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
