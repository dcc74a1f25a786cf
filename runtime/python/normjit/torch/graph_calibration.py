# SPDX-License-Identifier: Apache-2.0
"""Measures what share of a copy's bandwidth Inductor's kernels for norms reach on this machine: once for each device,
type and version of torch, when a graph first needs it. The numbers are kept in the folder of Inductor's cache."""
from __future__ import annotations

import functools
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import cache_dir

import normjit
from normjit.log import logger
from normjit.torch import graph_times
from normjit.torch.graph_nodes import hint

SHAPES = {"cpu": ((512, 768), (4096, 1024)), "cuda": ((8192, 4096),)}  # on CPUs, a size that fits in caches comes first
AS_FAST_AS_A_COPY = {"cpu": (), "cuda": ("rows", "rotated")}  # kinds that are not measured (NOTES N-804)
ANGLES = 1 << 22  # elements whose sines and cosines are timed: they fit in a GPU's L2 cache
LEAST_ELEMENTS = {"cpu": 512 * 768, "cuda": 2048 * 2048}  # for smaller matrices, the launch takes most of the time
FILE = "normjit_kernel_shares.json"
HEAD = 128  # columns of the heads that are rotated
Measured = dict[str, list[float]]  # for each kind of kernels, the share at each shape

_measured: dict[str, Measured] = {}


class Need(NamedTuple):
    """A kind in KERNELS on a device. The type is bf16 for all types of 16 bits, f32 for wider ones."""

    device: torch.device
    dtype: torch.dtype
    kind: str


def share_of(device: torch.device, dtype: torch.dtype, kind: str, shares: Mapping[Need, float] | None = None) -> float:
    """Returns the largest share that kernels of a kind in KERNELS reached: one of `shares` or, if None, the one that was
    measured on this machine. A share that is missing is 1, which counts Inductor's kernels as perfect."""
    need = Need(device, torch.bfloat16 if dtype.itemsize == 2 else torch.float32, kind)
    if shares is not None:
        return shares.get(need, 1.0)
    return min(max(_known().get(_key(device, need.dtype), {}).get(kind, [1.0])), 1.0)


def needs_of(module: torch.fx.GraphModule, inputs: Iterable[Any]) -> list[Need]:
    """Returns the shares that are needed to decide about the regions of this graph, which Dynamo made."""
    given = [each for each in inputs if isinstance(each, torch.Tensor)]
    made = [node.meta.get("example_value") for node in module.graph.nodes if node.op == "call_function"]
    matrices = [each for each in made if isinstance(each, torch.Tensor) and _is_matrix(each)]
    called = {getattr(node.target, "__name__", node.target) for node in module.graph.nodes}  # functions and methods
    kinds = ["rows"]
    if torch.is_grad_enabled() and any(each.requires_grad for each in given):
        kinds.append("columns")
    if called & {"cat", "concat"}:
        kinds += ["rotated", "rotated by angles"] if called & {"cos", "sin"} else ["rotated"]
    is_wide = any(_is_matrix(each) and each.dtype.itemsize >= 4 for each in given)
    needed = []
    for device in sorted({each.device for each in given if each.device.type in SHAPES}, key=str):
        there = [each for each in matrices if each.device == device]
        if any(math.prod(map(_size, each.shape)) >= LEAST_ELEMENTS[device.type] for each in there):
            is_narrow = any(each.dtype.itemsize == 2 for each in there)
            dtypes = [torch.float32] * is_wide + [torch.bfloat16] * is_narrow
            needed += [Need(device, dtype, kind) for dtype in dtypes for kind in kinds
                       if kind not in AS_FAST_AS_A_COPY[device.type]]
    return needed


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 1 and tensor.is_floating_point()


def _size(size: Any) -> int:
    known = hint(size)
    return LEAST_ELEMENTS["cuda"] if known is None else known


def shares_of(needs: Iterable[Need]) -> dict[Need, float]:
    """Returns shares, after measuring those that are not known yet. Must not be called while Inductor compiles."""
    return {need: _measure(need) for need in needs}


def fingerprint(shares: Mapping[Need, float] | None) -> str:
    """Returns shares as a text, for the keys of caches; if None, all that are known."""
    if shares is None:
        return json.dumps(_known(), sort_keys=True)
    return json.dumps([(*map(str, need), share) for need, share in shares.items()])


def _measure(need: Need) -> float:
    device, dtype, kind = need
    known, kernel = _known().setdefault(_key(device, dtype), {}), KERNELS[kind]
    if kind not in known:
        shapes = SHAPES[device.type][-1:] if kernel.is_rotation else SHAPES[device.type]
        try:
            if kernel.function is _rotated_by_angles and device.type == "cuda":
                known[kind] = [_share_by_angles(device, dtype)]
            else:
                known[kind] = [_share(device, dtype, shape, kernel) for shape in shapes]
            _keep()
        except Exception as error:  # torch may fail or run out of memory; the numbers are optional
            logger.warning("Inductor's kernels could not be measured on %s, and count as perfect: %s", device, error)
            known[kind] = [1.0]
    return share_of(*need)


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


def _share_by_angles(device: torch.device, dtype: torch.dtype) -> float:
    """Returns an estimate of the share that these kernels reach on a GPU. Sines and cosines take most of their time,
    and torch's own, which need no compilation, are as fast."""
    angles = torch.ones(ANGLES, dtype=dtype, device=device)
    result = torch.empty_like(angles)
    calls = [functools.partial(function, angles, out=result) for function in (torch.cos, torch.sin)]
    seconds = sum(graph_times.seconds(call, device) for call in calls)
    return 2 * ANGLES * dtype.itemsize / seconds / graph_times.bandwidth(device, graph_times.MOST_COPIED)


@functools.lru_cache(maxsize=None)
def _call(device: torch.device) -> float:
    """Returns the time of a call that does almost nothing."""
    one = torch.ones(2, device=device)
    return graph_times.seconds(one.neg, device) if device.type == "cuda" else _seconds(torch.neg, [one])


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


def _known() -> dict[str, Measured]:
    if not _measured:
        _measured.update(_read())
    return _measured


@functools.lru_cache(maxsize=None)
def _read() -> dict[str, Measured]:
    try:
        with open(os.path.join(cache_dir(), FILE)) as source:
            found: dict[str, Measured] = json.load(source)
    except (OSError, ValueError):  # no file was written yet, or not the whole file
        return {}
    return found


def _keep() -> None:
    folder = cache_dir()
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as target:
        json.dump(_measured, target)
    os.replace(target.name, os.path.join(folder, FILE))  # readers see the old file or the new one
