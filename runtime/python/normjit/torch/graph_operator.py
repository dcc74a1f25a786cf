# SPDX-License-Identifier: Apache-2.0
"""torch.ops.normjit.region: the kernel of a formula that stands for a region of a compiled graph."""
from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
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
    if not plan.launch([*tensors, *made]):
        for each in made:  # without rows only sums over them have elements
            each.zero_()
    return made


def empty_outputs(spec: str, outputs: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns tensors for the outputs. A layout is `m` and the number of an input, whose shape it is; `k` for its rows
    with 1 in place of the columns; `r` without; `c` for columns, and the number of dimensions of 1 before them; `s` for
    the first dimension and the columns of an input, `t` with 1 between them."""
    made = []
    for form, number, dtype in _layouts(outputs):
        if form == "c":
            made.append(tensors[0].new_empty((1,) * number + (_cols(spec),), dtype=dtype))
            continue
        shape = tensors[number].shape
        sizes: Any = {"m": shape, "k": (*shape[:-1], 1), "r": shape[:-1], "s": (shape[0], shape[-1]),
                      "t": (shape[0], *(1 for _ in shape[1:-1]), shape[-1])}[form]
        made.append(tensors[0].new_empty(sizes, dtype=dtype))
    return made


@functools.lru_cache(maxsize=None)
def _layouts(outputs: str) -> list[tuple[str, int, torch.dtype]]:
    return [(each[0], int(each[1:].partition(":")[0]), DTYPE_OF[each.partition(":")[2]]) for each in outputs.split()]


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
        self.has_slices = "[S" in spec
        self.operands = []
        for name, axes in re.findall(r"(\w+)\[([SMN,]+)\]", spec.partition("{")[0]):
            number = ctypes.c_int32()
            _library.check(library.normjit_spec_tensor(ctypes.byref(parsed), name.encode(),
                                                       ctypes.byref(number)))
            self.operands.append((number.value, axes))

    def launch(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Launches the kernel; returns False if there are no rows."""
        arguments, kept = _library.Arguments(), []
        for (number, axes), tensor in zip(self.operands, tensors):
            place = arguments.tensors[number]
            place.dtype = DTYPES.index(TYPES[tensor.dtype])
            if axes in ("N", "S,N"):
                tensor = tensor.contiguous()
                if axes == "S,N":
                    arguments.slice_strides[number] = self.cols
                place.cols = self.cols
            elif axes in ("M", "S,M"):
                tensor = tensor.contiguous()
                arguments.rows = tensor.numel()
            else:
                first = 1 if axes == "S,M,N" else 0
                row_stride = _one_stride(tensor, first)
                if row_stride is None:
                    tensor = tensor.contiguous()
                    row_stride = self.cols
                place.cols, place.row_stride = self.cols, row_stride or REPEAT
                rows = tensor.numel() // self.cols
                if axes == "S,M,N":
                    arguments.slices = tensor.shape[0]
                    arguments.slice_strides[number] = tensor.stride(0) or REPEAT
                    rows //= max(tensor.shape[0], 1)
                arguments.rows = rows
            kept.append(tensor)
            place.data = tensor.data_ptr()
        if self.has_slices:
            first_matrix = next(t for (_, axes), t in zip(self.operands, kept) if axes == "S,M,N")
            arguments.rows = first_matrix.numel() // self.cols // max(first_matrix.shape[0], 1)
        if arguments.rows == 0 or (self.has_slices and arguments.slices == 0):
            return False
        on_gpu = self.device.type == "cuda"
        size = self.kernel.workspace(arguments.rows, arguments.slices)
        memory = arrays._workspace(kept[0], size, on_gpu)
        arguments.workspace, arguments.workspace_bytes = memory.address, size
        if on_gpu:
            arguments.stream = torch.cuda.current_stream(self.device).cuda_stream
        _library.check(library.normjit_launch(self.kernel.pointer, ctypes.byref(arguments)))
        return True


@functools.lru_cache(maxsize=512)
def _plan(spec: str, device: str) -> _Plan:
    return _Plan(spec, device)


def make(spec: str, device: torch.device) -> None:
    """Makes the kernel of a spec now. Raises normjit.Error for what normjit cannot serve."""
    _plan(spec, str(device))


def _one_stride(tensor: torch.Tensor, first: int) -> int | None:
    """Returns the stride from row to row of dimensions [first, last), or None if no one stride describes them."""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        return None
    return collapsed(tensor.shape[first:-1], tensor.stride()[first:-1], tensor.shape[-1])


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
