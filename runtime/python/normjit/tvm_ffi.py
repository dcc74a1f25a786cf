# SPDX-License-Identifier: Apache-2.0
"""normjit's kernels as functions of tvm-ffi, for every program and framework that calls such functions.

    import normjit.tvm_ffi

    norm = normjit.tvm_ffi.prepare("rmsnorm pass=forward cols=1024 x=bf16 gamma=f32", "cuda:0", "x", "gamma", "y")
    norm(x, gamma, y)       # y is written, on the stream that tvm-ffi has for the device: that of torch, for its tensors

A program without Python loads LIBRARY with tvm-ffi and finds the same functions, prepare and workspace_bytes."""
from __future__ import annotations

import os
from typing import Any, Callable

from normjit import _library

_library.require("tvm_ffi", "0.1.15", by="normjit.tvm_ffi", project="apache-tvm-ffi")
import tvm_ffi  # noqa: E402

__all__ = ["LIBRARY", "prepare", "workspace_bytes"]

LIBRARY = os.path.join(_library.FOLDER, "libnormjit_tvm_ffi.so")
_module = tvm_ffi.load_module(LIBRARY)
_prepare, _workspace_bytes = _module.prepare, _module.workspace_bytes


def prepare(spec: str, device: Any, *tensors: str) -> Callable[..., None]:
    """Compiles a kernel, or finds it in memory or in the cache, and returns the function that launches it.

    spec     a text such as "layernorm cols=4096 x=bf16 gamma=f32"; it may begin with a formula. With "rows=~512" the
             kernel takes any number of rows, and is fastest for about 512; likewise "slices=~8"
    device   a CPU or CUDA device: "cuda:0", or one of tvm_ffi's or torch's
    tensors  the names of the tensors, inputs and outputs, in the order in which the function takes them

    The function takes tensors of any number of dimensions if one row stride describes all but the last, and returns
    None. Workspace comes from tvm-ffi's allocator, on a CPU from normjit. If "workspace" is among the names, the
    function takes it as an argument: workspace_bytes() bytes of contiguous memory, aligned to 64. Both functions raise
    ValueError for arguments that do not fit. Any number of threads may call both, each with its own workspace."""
    function: Callable[..., None] = _prepare(spec, _ready(device), *tensors)
    return function


def workspace_bytes(spec: str, device: Any, rows: int, slices: int = 0) -> int:
    """Returns the bytes of workspace with which the kernel of prepare() is fastest, for a launch of this many rows and
    slices."""
    size: int = _workspace_bytes(spec, _ready(device), rows, slices)
    return size


def _ready(device: Any) -> tvm_ffi.Device:
    known = device if isinstance(device, tvm_ffi.Device) else tvm_ffi.device(str(device))
    if known.type == "cuda":
        _library.load_nvrtc()
    return known
