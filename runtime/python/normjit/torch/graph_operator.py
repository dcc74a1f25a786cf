# SPDX-License-Identifier: Apache-2.0
"""torch.ops.normjit.region: the kernel of a formula that stands for a region of a compiled graph."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from normjit import _library, arrays
from normjit._library import DTYPES, library
from normjit.torch import _kernels

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
DTYPE_OF = {name: dtype for dtype, name in TYPES.items()}
REPEAT = -1  # NORMJIT_REPEAT_ROW

calls: dict[str, int] = {}  # of each formula in this process
_defined: torch.library.Library | None = None


def register() -> None:
    """Defines the operator, once per process."""
    global _defined
    with _kernels.lock:
        if _defined is not None:
            return
        made = torch.library.Library("normjit", "FRAGMENT")
        made.define("region(str spec, str outputs, Tensor[] tensors) -> Tensor[]",
                    tags=[torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides])
        made.impl("region", region, "CompositeExplicitAutograd")
        torch.library.register_fake("normjit::region", empty_outputs, lib=made)
        _defined = made


def region(spec: str, outputs: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the outputs of a formula.

    spec     the text of a spec with a formula; its inputs are `tensors`, in this order
    outputs  the layout and type of each output, in the formula's order; see layout_of()"""
    calls[spec] = calls.get(spec, 0) + 1
    made = empty_outputs(spec, outputs, tensors)
    plan = _plan(spec, str(tensors[0].device))
    if not plan.launch([*tensors, *made], _split(outputs)):
        for each in made:  # without rows only sums over them have elements
            each.zero_()
    return made


@contextlib.contextmanager
def uncounted(spec: str) -> Iterator[None]:
    """Leaves the number of calls as it is."""
    before = calls.get(spec)
    try:
        yield
    finally:
        calls.pop(spec, None)
        if before is not None:
            calls[spec] = before


def empty_outputs(spec: str, outputs: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns tensors for the outputs. A layout is `m` and the number of an input, whose shape it is; `k` for its rows
    with 1 in place of the columns; `r` without; `c` for columns, and the number of dimensions of 1 before them; `s` for
    the dimensions of slices and the columns of an input, `t` with 1 between them. A last word gives the number of the
    first dimensions that are slices."""
    made = []
    for form, number, dtype in _layouts(outputs):
        if form == "c":
            made.append(tensors[0].new_empty((1,) * number + (_cols(spec),), dtype=dtype))
            continue
        shape, split = tensors[number].shape, _split(outputs)
        sizes: Any = {"m": shape, "k": (*shape[:-1], 1), "r": shape[:-1], "s": (*shape[:split], shape[-1]),
                      "t": (*shape[:split], *(1 for _ in shape[split:-1]), shape[-1])}[form]
        made.append(tensors[0].new_empty(sizes, dtype=dtype))
    return made


@functools.lru_cache(maxsize=None)
def _layouts(outputs: str) -> list[tuple[str, int, torch.dtype]]:
    return [(each[0], int(each[1:].partition(":")[0]), DTYPE_OF[each.partition(":")[2]]) for each in outputs.split()
            if ":" in each]


@functools.lru_cache(maxsize=None)
def _split(outputs: str) -> int:
    return int(outputs.split()[-1]) if ":" not in outputs.split()[-1] else 0


@functools.lru_cache(maxsize=None)
def _cols(spec: str) -> int:
    found = re.search(r" cols=(\d+)", spec)
    assert found is not None, spec
    return int(found[1])


class _Plan:
    """A kernel, and where its tensors go."""

    def __init__(self, spec: str, device: str) -> None:
        parsed = _library.parse_spec(spec)
        self.device, self.cols = torch.device(device), _cols(spec)
        stream = None if self.device.type == "cpu" else torch.cuda.current_stream(self.device).cuda_stream
        self.kernel = _library.Kernel(_library.engine(device), parsed, stream)
        self.matrix = "S,M,N" if "[S" in spec else "M,N"
        self.operands = []
        for name, axes in re.findall(r"(\w+)\[([SMN,]+)\]", spec.partition("{")[0]):
            number = ctypes.c_int32()
            _library.check(library.normjit_spec_tensor(ctypes.byref(parsed), name.encode(),
                                                       ctypes.byref(number)))
            self.operands.append((number.value, axes))

    def launch(self, tensors: Sequence[torch.Tensor], split: int) -> bool:
        """Launches the kernel; returns False if there are no rows."""
        arguments, kept = _library.Arguments(), []
        for (number, axes), tensor in zip(self.operands, tensors):
            first = split if axes.startswith("S") else 0
            tensor, slice_stride, row_stride = _described(tensor, axes, first)
            kept.append(tensor)
            place = arguments.tensors[number]
            place.data, place.dtype = tensor.data_ptr(), DTYPES.index(TYPES[tensor.dtype])
            place.cols = self.cols if axes.endswith("N") else 0
            if axes.endswith("M,N"):
                place.row_stride = row_stride or REPEAT
            if first and axes != "S,M":
                arguments.slice_strides[number] = slice_stride or REPEAT
            if axes == self.matrix:
                arguments.slices = math.prod(tensor.shape[:first])
                arguments.rows = math.prod(tensor.shape[first:-1])
        if arguments.rows == 0 or (split and arguments.slices == 0):
            return False
        on_gpu = self.device.type == "cuda"
        size = self.kernel.workspace(arguments.rows, arguments.slices)
        memory = arrays._workspace(kept[0], size, on_gpu)
        arguments.workspace, arguments.workspace_bytes = memory.address, size
        if on_gpu:
            arguments.stream = torch.cuda.current_stream(self.device).cuda_stream
        _library.check(library.normjit_launch(self.kernel.pointer, ctypes.byref(arguments)))
        return True


def _described(tensor: torch.Tensor, axes: str, split: int) -> tuple[torch.Tensor, int, int]:
    """Returns a tensor, copied if its rows need more than one stride, and its strides from slice to slice and row to row."""
    if axes in ("M", "N", "S,M"):
        return tensor.contiguous(), 0, 0
    for each in (tensor, tensor.contiguous()):
        if each.shape[-1] > 1 and each.stride(-1) != 1:
            continue
        cols = each.shape[-1]
        slices = collapsed(each.shape[:split], each.stride()[:split], cols) if split else 0
        rows = collapsed(each.shape[split:-1], each.stride()[split:-1], cols)
        if slices is not None and rows is not None:
            return each, slices, rows
    raise AssertionError("a contiguous tensor without a row stride")


@functools.lru_cache(maxsize=512)
def _plan(spec: str, device: str) -> _Plan:
    return _Plan(spec, device)


def make(spec: str, device: torch.device) -> None:
    """Makes the kernel of a spec now. Raises normjit.Error for what normjit cannot serve."""
    _plan(spec, str(device))


def collapsed(sizes: Sequence[int], strides: Sequence[int], cols: int) -> int | None:
    """Returns the stride of dimensions seen as one; `cols` if they have one element. None: there is no such stride."""
    stride, count = None, 1
    for size, each in zip(reversed(sizes), reversed(strides)):
        if size == 1:
            continue
        if stride is None:
            stride = each
        elif each != stride * count:
            return None
        count *= size
    return cols if stride is None else stride
