# SPDX-License-Identifier: Apache-2.0
"""torch.ops.normjit.region: the operator that replaces a region of a compiled graph by the kernel of a formula."""
from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from normjit import _library, _operand, arrays
from normjit._library import DTYPES, library
from normjit.torch import _kernels

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
DTYPE_OF = {name: dtype for dtype, name in TYPES.items()}
MOST_MAKERS = 8  # threads that make kernels
MOST_CALLS = 64  # how many calls of one kernel, with different shapes, have their arguments kept
REPEAT = -1  # NORMJIT_REPEAT_ROW

_Made = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]  # an output's shape, strides and type

calls: dict[str, int] = {}  # how often this process called each formula
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
    outputs the layout and type of each output, in the formula's order; see empty_outputs()"""
    calls[spec] = calls.get(spec, 0) + 1
    return _plan(spec, tensors[0].device).launch(outputs, tensors)


@contextlib.contextmanager
def uncounted(spec: str) -> Iterator[None]:
    """Does not count calls inside the with statement."""
    before = calls.get(spec)
    try:
        yield
    finally:
        calls.pop(spec, None)
        if before is not None:
            calls[spec] = before


def empty_outputs(spec: str, outputs: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Makes tensors for the outputs. A layout is a letter and a number. `m`: the shape of the input with this number;
    `k`: the same with 1 in place of the columns; `r`: the same without the columns; `s`: the dimensions of its
    slices, then its columns; `t`: the same with a 1 for each other dimension; `q`: the dimensions of its slices, then
    those of its rows. `c`: the columns, after this number of dimensions of 1. The last word is the number of parts()."""
    made = []
    for form, number, dtype in _layouts(outputs):
        if form == "c":
            made.append(tensors[0].new_empty((1,) * number + (_cols(spec),), dtype=dtype))
            continue
        made.append(tensors[0].new_empty(output_shapes(tensors[number].shape, _split(outputs))[form], dtype=dtype))
    return made


def output_shapes(shape: Sequence[Any], split: int) -> dict[str, tuple[Any, ...]]:
    """Returns the shapes that the letters of empty_outputs() mean for an input of this shape."""
    slices, rows = parts(shape, split)
    ones = [1] * len(rows)
    return {"m": (*shape,), "k": (*shape[:-1], 1), "r": (*shape[:-1],), "q": (*slices, *rows), "s": (*slices, shape[-1]),
            "t": (*ones, *slices, shape[-1]) if split < 0 else (*slices, *ones, shape[-1])}


def parts(dims: Sequence[Any], split: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Divides the sizes of a matrix, or other values for each dimension, into the slices' and the rows'. The first
    `split` dimensions are slices; with a negative number, they are rows. The last one is columns."""
    first, others = dims[:abs(split)], dims[abs(split):-1]
    return (others, first) if split < 0 else (first, others)


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
    """The kernels of a spec, and where their tensors go."""

    def __init__(self, spec: str, device: torch.device) -> None:
        self.text, self.spec, self.device, self.cols = spec, _library.parse_spec(spec), device, _cols(spec)
        self.matrix = "S,M,N" if "[S" in spec else "M,N"
        self.operands: list[tuple[int, str]] = []
        self.calls: dict[Any, _Call] = {}
        self.empty = _allocator(device)
        for name, axes in re.findall(r"(\w+)\[([SMN,]*)\]", spec.partition("{")[0]):
            number = ctypes.c_int32()
            _library.check(library.normjit_spec_tensor(ctypes.byref(self.spec), name.encode(), ctypes.byref(number)))
            self.operands.append((number.value, axes))

    def kernel_for(self, rows: int, slices: int) -> _library.Kernel:
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else None
        return _library.Kernel(_library.engine(str(self.device)), self.spec, stream, rows, slices)

    def launch(self, outputs: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Makes the outputs, and launches the kernel if there are rows."""
        first = tensors[0]
        key = outputs, *[(each.shape, each.stride()) for each in tensors]
        call = self.calls.get(key) or self._remember(key, outputs, tensors)
        made = [self.empty(*each) for each in call.outputs]
        if call.kernel is None:
            return [each.zero_() for each in made]  # only sums over rows have elements
        used = [*tensors, *made]
        for i in call.copied:
            used[i] = used[i].contiguous()
        numbered = zip((number for number, _ in self.operands), used)
        arrays.launch_again(call.kernel, call.arguments, numbered, call.workspace, first, _operand.stream_of(first))
        return made

    def _remember(self, key: Any, outputs: str, tensors: Sequence[torch.Tensor]) -> _Call:
        made = empty_outputs(self.text, outputs, tensors)
        call = self._call([*tensors, *made], _split(outputs), [(tuple(each.shape), each.stride(), each.dtype) for each in made])
        if len(self.calls) == MOST_CALLS:
            self.calls.clear()
        if call.kernel is None or not call.kernel.stands_in:
            self.calls[key] = call
        return call

    def _call(self, tensors: Sequence[torch.Tensor], split: int, outputs: list[_Made]) -> _Call:
        """Returns the part of a call that is the same for all tensors with these shapes and strides."""
        arguments, copied = _library.Arguments(), []
        for i, ((number, axes), tensor) in enumerate(zip(self.operands, tensors)):
            first = split if axes.startswith("S") else 0
            strides = _strides(tensor, axes, first)
            if strides is None:
                copied.append(i)
                strides = _strides(tensor.contiguous(), axes, first)
                assert strides is not None
            place = arguments.tensors[number]
            place.dtype = DTYPES.index(TYPES[tensor.dtype])
            place.cols = self.cols if axes.endswith("N") else 0
            if axes.endswith("M,N"):
                place.row_stride = strides[1] or REPEAT
            if first and axes != "S,M":
                arguments.slice_strides[number] = strides[0] or REPEAT
            if axes == self.matrix:
                slices, rows = parts(tensor.shape, first)
                arguments.slices, arguments.rows = math.prod(slices), math.prod(rows)
        if arguments.rows == 0 or (split and arguments.slices == 0):
            return _Call(None, b"", (), 0, outputs)
        kernel = self.kernel_for(arguments.rows, arguments.slices)
        return _Call(kernel, bytes(arguments), tuple(copied), kernel.workspace(arguments.rows, arguments.slices),
                     outputs)


class _Call(NamedTuple):
    """The kernel of a launch (None if there are no rows), its arguments without the addresses, the numbers of the
    tensors that must be copied, the size of the workspace, and the shapes, strides and types of the outputs."""

    kernel: _library.Kernel | None
    arguments: bytes
    copied: tuple[int, ...]
    workspace: int
    outputs: list[_Made]


def _allocator(device: torch.device) -> Callable[..., torch.Tensor]:
    """Returns a function that makes a tensor of a shape, strides and a type: the one in Inductor's code, which takes a
    third of the time of torch.empty_strided, but does not know other devices than the current one."""
    fast: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}")
    if device.type == "cpu":
        return fast

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if torch._C._cuda_getDevice() == device.index:
            return fast(shape, strides, dtype)
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty


def _strides(tensor: torch.Tensor, axes: str, split: int) -> tuple[int, int] | None:
    """Returns a tensor's strides from slice to slice and from row to row; None if these two do not describe it."""
    if tensor.numel() == 0:  # contiguous() would not change its strides
        return 0, 0
    if axes in ("", "M", "N", "S,M"):
        return (0, 0) if tensor.is_contiguous() else None
    cols = tensor.shape[-1]
    if cols > 1 and tensor.stride(-1) != 1:
        return None
    if axes == "S,N":  # other dimensions are 1
        slices, rows = collapsed(tensor.shape[:-1], tensor.stride()[:-1], cols), collapsed((), (), cols)
    else:
        sizes, strides = parts(tensor.shape, split), parts(tensor.stride(), split)
        slices, rows = (collapsed(sizes[i], strides[i], cols) for i in range(2))
    return None if slices is None or rows is None else (slices, rows)


@functools.lru_cache(maxsize=512)
def _plan(spec: str, device: torch.device) -> _Plan:
    return _Plan(spec, device)


class Wanted(NamedTuple):
    """A kernel to be made: its spec, and about how many rows and slices it will get; 0 if the number is unknown."""

    spec: str
    device: torch.device
    rows: int
    slices: int


def make(wanted: Wanted) -> None:
    """Makes a kernel now. Raises normjit.Error if normjit cannot serve its spec."""
    _plan(wanted.spec, wanted.device).kernel_for(wanted.rows, wanted.slices)


def make_ahead(wanted: Iterable[Wanted | None]) -> None:
    """Makes kernels in parallel, for calls of make() to come, which raise the errors. Each is begun as soon as `wanted`
    yields it."""
    begun: set[Wanted] = set()
    with concurrent.futures.ThreadPoolExecutor(MOST_MAKERS) as pool:
        for each in wanted:
            if each is not None and each not in begun:
                begun.add(each)
                with contextlib.suppress(_library.Error):
                    _library.engine(str(each.device))  # or each thread would make one
                pool.submit(make, each)


def collapsed(sizes: Sequence[int], strides: Sequence[int], cols: int,
              are_equal: Callable[[int, int], bool] = operator.eq) -> int | None:
    """Returns the single stride that describes these dimensions, `cols` if they have one element, or None if no stride
    does."""
    stride, count = None, 1
    for size, each in zip(reversed(sizes), reversed(strides)):
        if are_equal(size, 1):
            continue
        if stride is None:
            stride = each
        elif not are_equal(each, stride * count):
            return None
        count *= size
    return cols if stride is None else stride
