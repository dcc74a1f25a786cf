# SPDX-License-Identifier: Apache-2.0
"""LayerNorm, RMSNorm and their gradients on arrays of NumPy, CuPy, PyTorch and anything else with DLPack."""
from __future__ import annotations

import collections.abc
import ctypes
import functools
import math
import mmap
import threading

from normjit import _graphs, _library, _operand
from normjit._library import DTYPES, NO_DTYPE, NORM_DTYPES, NORMS, ROOM_FOR_TENSORS, ROUNDINGS, TENSORS, InvalidArgument, library

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, but importing typing takes milliseconds
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    Array = Any  # an array of any library with __dlpack__()
    Outputs = Union[str, collections.abc.Iterable[str], None]
    Out = Optional[collections.abc.Mapping[str, Array]]

COLUMNS = ("gamma", "beta", "dgamma", "dbeta")
ROWS = ("mean", "rstd", "rowscale")

Gradients = collections.namedtuple("Gradients", ("dx", "dgamma", "dbeta"))
Gradients.__doc__ = "The gradients of x, gamma and beta, None for those that were not computed."
Layer = collections.namedtuple("Layer", ("y", "h", "mean", "rstd"))
Layer.__doc__ = "The output of a norm, what was normalised, and its statistics, None for those that were not asked for."
GRADIENTS, LAYER = Gradients._fields, Layer._fields

_Problem = collections.namedtuple("_Problem", ("norm", "forward", "eps", "gamma_offset", "rounding", "invariant",
                                               "accumulate"), defaults=(None,))


def layer_norm(x: Array, gamma: Array | None = None, beta: Array | None = None, *, residual: Array | None = None,
               rowscale: Array | None = None, eps: float = 1e-5, gamma_offset: float = 0.0, invariant: bool = False,
               outputs: Outputs = None, out: Out = None, stream: Any = None) -> Layer:
    """Returns y = (h - mean) * rstd * (gamma + gamma_offset) + beta, over the last dimension of h = x * rowscale +
    residual.

    x           an array of [..., N], on a CPU or a CUDA GPU
    gamma, beta [N], or None for 1 and 0
    residual    of x's shape, or None for 0
    rowscale    of x's shape, without its last dimension or with 1 in place of it; or None for 1
    outputs     which of "y", "h", "mean" and "rstd" to compute; None: y, with a residual also h
    out         a mapping of those names to arrays to write to. Other arrays are made: y of x's type, h of the
                residual's, statistics in float32. y and h may be x or the residual

    Returns a Layer. All else is as in layer_norm_backward(), which takes its mean and rstd, and its h as x."""
    inputs = {"x": x, "gamma": gamma, "beta": beta, "residual": residual, "rowscale": rowscale}
    return _compute(_Problem("layernorm", True, eps, gamma_offset, "none", invariant), inputs, outputs, out, stream)


def rms_norm(x: Array, gamma: Array | None = None, *, residual: Array | None = None, rowscale: Array | None = None,
             eps: float = 1e-5, gamma_offset: float = 0.0, rounding: str = "none", invariant: bool = False,
             outputs: Outputs = None, out: Out = None, stream: Any = None) -> Layer:
    """Returns y = h * rstd * (gamma + gamma_offset), over the last dimension of h = x * rowscale + residual, with
    rstd = 1 / sqrt(mean(h^2) + eps). gamma_offset=1 is a zero-centred gamma, as in Gemma; rounding="llama" rounds
    h, h * rstd and y where Hugging Face's LlamaRMSNorm does. All else is as in layer_norm()."""
    inputs = {"x": x, "gamma": gamma, "residual": residual, "rowscale": rowscale}
    return _compute(_Problem("rmsnorm", True, eps, gamma_offset, rounding, invariant), inputs, outputs, out, stream)


def layer_norm_backward(x: Array, dy: Array, gamma: Array | None = None, *, mean: Array | None = None,
                        rstd: Array | None = None, eps: float = 1e-5, gamma_offset: float = 0.0,
                        dresidual: Array | None = None, invariant: bool = False, accumulate: Outputs = None,
                        outputs: Outputs = None, out: Out = None, stream: Any = None) -> Gradients:
    """Returns the gradients of y = (x - mean) * rstd * (gamma + gamma_offset) + beta, over the last dimension of x.

    x, dy      arrays of [..., N] of one shape, on a CPU or a CUDA GPU
    gamma      [N], or None for 1
    mean, rstd the statistics of the rows, of x's shape without its last dimension or with 1 in its place; None:
               computed from x, with eps
    dresidual  of x's shape: added to dx
    invariant  a row's dx has the same bits in every batch; slower for few rows. On a GPU x, dy, dx and their rows must
               then be aligned to 16 bytes
    accumulate which of "dgamma" and "dbeta" to add to what their arrays in `out` hold, with one rounding
    outputs    which of "dx", "dgamma" and "dbeta" to compute; None: all, dgamma and dbeta only with a gamma
    out        a mapping of those names to arrays to write to. Other arrays are made. dx may be x or dy
    stream     on a GPU, a CUDA stream of any library or its handle; None: the current stream of x's library

    PyTorch tensors must not require a gradient, except under torch.no_grad(): autograd does not see these functions.
    Use those of normjit.torch.

    Types may differ from array to array: float32, bfloat16 and float16, where mean and rstd have one type; or float64
    for all. Returns Gradients, with None for what was not computed. On a GPU they are ready in the order of the stream.
    Raises normjit.InvalidArgument, a ValueError, for arguments that do not fit, and normjit.Unavailable for what this
    machine cannot do. Thread safe; it releases the interpreter's lock."""
    if (mean is None) != (rstd is None):
        raise InvalidArgument("mean and rstd come together")
    inputs = {"x": x, "dy": dy, "gamma": gamma, "mean": mean, "rstd": rstd, "dresidual": dresidual}
    problem = _Problem("layernorm", False, eps, gamma_offset, "none", invariant, accumulate)
    return _compute(problem, inputs, outputs, out, stream)


def rms_norm_backward(x: Array, dy: Array, gamma: Array | None = None, *, rstd: Array | None = None, eps: float = 1e-5,
                      gamma_offset: float = 0.0, dresidual: Array | None = None, rounding: str = "none",
                      invariant: bool = False, accumulate: Outputs = None, outputs: Outputs = None, out: Out = None,
                      stream: Any = None) -> Gradients:
    """Returns the gradients of y = x * rstd * (gamma + gamma_offset), over the last dimension of x, with rstd = 1 /
    sqrt(mean(x^2) + eps). gamma_offset=1 is a zero-centred gamma, as in Gemma; rounding="llama" rounds where the
    autograd of Hugging Face's LlamaRMSNorm does. All else is as in layer_norm_backward()."""
    inputs = {"x": x, "dy": dy, "gamma": gamma, "rstd": rstd, "dresidual": dresidual}
    problem = _Problem("rmsnorm", False, eps, gamma_offset, rounding, invariant, accumulate)
    return _compute(problem, inputs, outputs, out, stream)


def _compute(problem, inputs, outputs, out, stream):
    if _graphs.is_traced():
        return _graphs.outside(_operand.NEEDS_DATA, _compute, problem, inputs, outputs, out, stream)
    problem, out = _checked(problem, inputs, out)
    if not isinstance(problem.rounding, str) or problem.rounding not in ROUNDINGS:
        raise InvalidArgument(f"rounding: {problem.rounding!r}; allowed: {', '.join(ROUNDINGS)}")
    wanted = _wanted(problem, outputs, inputs, out)
    problem = problem._replace(accumulate=accumulated_of(problem.accumulate, [name for name in wanted if name in COLUMNS], out))
    x = inputs["x"]
    on_gpu = hasattr(x, "__dlpack_device__") and _operand.device_type("x", x) != _operand.CPU
    if stream is not None and not on_gpu:
        raise InvalidArgument("stream: x is on the CPU, which has none")
    handle = (_operand.current_stream(x) if stream is None else _operand.stream_handle(stream)) if on_gpu else None
    given = {name: _operand.Operand(name, array, handle, NORM_DTYPES) for name, array in inputs.items() if array is not None}
    _check_inputs(given)
    operands = {name: operand for name, operand in given.items() if _reads(problem, name, wanted)}
    with _operand.on_stream(x, handle) if on_gpu else _Nothing():
        for name in wanted:
            made = out.get(name)
            if made is None:
                made = _make(name, inputs, operands["x"])
            operands[name] = _operand.Operand(name, made, handle, NORM_DTYPES)
            _check_output(operands[name], operands["x"])
        _launch(problem, operands, handle)
    for made in out.values():
        _operand.was_written(made)
    results = Layer if problem.forward else Gradients
    return results(*(operands[name].array if name in wanted else None for name in results._fields))


def _checked(problem, inputs, out):
    """Returns numbers as floats, and out as a mapping."""
    for name in ("x", "dy"):
        if name in inputs and inputs[name] is None:
            raise InvalidArgument(f"{name}: is None; must be an array")
    out = mapping_of(out)
    return problem._replace(invariant=boolean("invariant", problem.invariant), eps=number("eps", problem.eps, 0),
                            gamma_offset=number("gamma_offset", problem.gamma_offset)), out


def boolean(name, value):
    """Returns True or False, Python's or NumPy's, as a bool. Raises InvalidArgument for anything else."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # NumPy 2 and NumPy 1 call theirs so
        return bool(value)
    raise InvalidArgument(f"{name}: is {type(value).__name__}; must be True or False")


def mapping_of(out):
    """Returns the argument out= as a mapping. Raises InvalidArgument."""
    out = {} if out is None else out
    if not isinstance(out, collections.abc.Mapping):
        raise InvalidArgument(f"out: is {type(out).__name__}; must be a mapping of outputs' names to arrays")
    return out


def number(name, value, least=None):
    """Returns a number as a float. Raises InvalidArgument unless it is finite, and at least `least`."""
    _library.check_finite(name, value, least)
    try:
        return float(value)
    except TypeError:  # an array of one element raises it
        raise InvalidArgument(f"{name}: {value!r}; must be a number") from None


class _Nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def _wanted(problem, outputs, inputs, out):
    has_gamma = inputs["gamma"] is not None
    layernorm = problem.norm == "layernorm"
    if problem.forward:
        possible = LAYER if layernorm else ("y", "h", "rstd")
        usual = ("y",) if inputs["residual"] is None else ("y", "h")
    else:
        possible = GRADIENTS if layernorm else GRADIENTS[:2]
        usual = possible if has_gamma else ("dx",)
    wanted = wanted_of(possible, usual, outputs, out)
    if wanted == ["h"]:
        raise InvalidArgument("outputs: h alone; a norm computes it only together with y or a statistic")
    if "dgamma" in wanted and not has_gamma:
        raise InvalidArgument("outputs: dgamma: there is no gamma")
    return wanted


def wanted_of(possible, usual, outputs, out):
    """Returns the outputs that outputs= names; for None, returns the usual ones and those in `out`. Raises
    InvalidArgument for a name that is not in `possible`."""
    asked = [*usual, *out] if outputs is None else outputs
    names = names_in(asked)
    for what, given, each in (("out", list(out), out), ("outputs", outputs, names)):
        if not all(isinstance(name, str) for name in each):
            raise InvalidArgument(f"{what}: {given!r}; must be names of {', '.join(possible)}")
    wanted = set(names)
    for what, names in (("outputs", wanted), ("out", set(out))):
        if names - set(possible):
            raise InvalidArgument(f"{what}: {', '.join(sorted(names - set(possible)))}; allowed: {', '.join(possible)}")
    if set(out) - wanted:
        raise InvalidArgument(f"out: {', '.join(sorted(set(out) - wanted))}: not among the outputs")
    if not wanted:
        raise InvalidArgument(f"outputs: none; allowed: {', '.join(possible)}")
    return [name for name in possible if name in wanted]


def names_in(asked):
    """Returns what an argument names: one name, or several."""
    return [asked] if isinstance(asked, str) or not isinstance(asked, collections.abc.Iterable) else list(asked)


def accumulated_of(accumulate, possible, out):
    """Returns the outputs that accumulate= names. Each must be in `possible`, and have an array in `out`. Raises
    InvalidArgument."""
    if accumulate is None:
        return ()
    names = names_in(accumulate)
    for name in names:
        if name not in possible:
            raise InvalidArgument(f"accumulate: {name!r}; allowed: {', '.join(possible) or 'none of these outputs'}")
        if out.get(name) is None:
            raise InvalidArgument(f"accumulate: {name}: has no array in out to be added to")
    return tuple(name for name in possible if name in names)


def _reads(problem, name, wanted):
    """True if a wanted output depends on an input. x and dy always count, because they give the shape."""
    if problem.forward:
        return "y" in wanted or name not in ("gamma", "beta")
    if name in ("mean", "rstd"):
        return "dx" in wanted or "dgamma" in wanted
    return name in ("x", "dy") or "dx" in wanted


def _make(name, inputs, x):
    """Returns an array for an output."""
    if name in ROWS:
        return _operand.empty(x.array, x.shape[:-1], "float64" if x.dtype == "f64" else "float32")
    like = {"h": "residual", "dgamma": "gamma", "dbeta": "gamma"}.get(name)
    array = inputs[like] if like and inputs[like] is not None else x.array
    return _operand.empty(array, _shapes(name, x)[0])


def _shapes(name, x):
    """Returns the shapes that a tensor may have."""
    if name in COLUMNS:
        return (x.shape[-1:],)
    return (x.shape[:-1], (*x.shape[:-1], 1)) if name in ROWS else (x.shape,)


def _check_inputs(operands):
    x = operands["x"]
    if not x.shape:
        raise InvalidArgument("x: has no dimensions; the last must be the normalised one")
    for name, operand in operands.items():
        if operand.device != x.device:
            raise InvalidArgument(f"{name}: is on {operand.device}; x is on {x.device}")
        shapes = _shapes(name, x)
        if operand.shape not in shapes:
            that = "" if name in COLUMNS + ROWS else "that of x, "
            raise InvalidArgument(
                f"{name}: its shape is {operand.shape}; must be {that}{' or '.join(str(each) for each in shapes)}"
            )


def _check_output(operand, x):
    shapes = _shapes(operand.name, x)
    if operand.shape not in shapes:
        raise InvalidArgument(f"out: {operand.name}: its shape is {operand.shape}; must be {shapes[0]}")
    if operand.device != x.device:
        raise InvalidArgument(f"out: {operand.name}: is on {operand.device}; x is on {x.device}")
    if operand.read_only:
        raise InvalidArgument(f"out: {operand.name}: cannot be written to")


@_library.keeps
def _kernel(device, problem, rows, cols, dtypes, recompute, stream):
    spec = _library.Spec(
        norm=NORMS.index(problem.norm), rows=-1, cols=cols, stats=recompute, eps=problem.eps,
        gamma_offset=problem.gamma_offset, rounding=ROUNDINGS.index(problem.rounding), invariant=problem.invariant,
        **{"pass": problem.forward}
    )
    spec.dtypes = (ctypes.c_int32 * ROOM_FOR_TENSORS)(*dtypes)
    spec.accumulate = sum(1 << TENSORS.index(name) for name in problem.accumulate)
    return _library.Kernel(_library.engine(device), spec, stream, rows)


def _launch(problem, operands, stream):
    x = operands["x"]
    dtypes = [NO_DTYPE] * ROOM_FOR_TENSORS
    for name, operand in operands.items():
        dtypes[TENSORS.index(name)] = DTYPES.index(operand.dtype)
    recompute = problem.forward or ("rstd" not in operands and ("dx" in operands or "dgamma" in operands))
    problem = problem._replace(eps=problem.eps if recompute else 0.0,
                               gamma_offset=problem.gamma_offset if "gamma" in operands else 0.0,
                               invariant=problem.invariant and (problem.forward or "dx" in operands))
    kernel = _kernel(x.device, problem, math.prod(x.shape[:-1]), x.shape[-1], tuple(dtypes), recompute, stream)
    launch(kernel, {TENSORS.index(name): operand for name, operand in operands.items()}, x.array, stream)


def launch(kernel, operands, like, stream):
    """Launches a kernel on `operands`, a mapping from tensor numbers, with a workspace on the device of an array."""
    arguments = arguments_of(kernel, operands)
    _launch_with(kernel, arguments, kernel.workspace(arguments.rows, arguments.slices), like, stream)


def arguments_of(kernel, operands):
    arguments = _library.Arguments()
    for number, operand in operands.items():
        _library.check(library.normjit_set_dlpack(kernel.pointer, ctypes.byref(arguments), number,
                                                  ctypes.byref(operand.tensor)))
    return arguments


def launch_again(kernel, kept, tensors, workspace_bytes, like, stream):
    """Launches a kernel with arguments that were kept, and with the addresses of torch's tensors, given as pairs with
    their numbers."""
    arguments = _library.Arguments.from_buffer_copy(kept)
    for number, tensor in tensors:
        arguments.tensors[number].data = tensor.data_ptr()
    _launch_with(kernel, arguments, workspace_bytes, like, stream)


def _launch_with(kernel, arguments, workspace_bytes, like, stream):
    """Launches a kernel with a workspace on the device of an array."""
    memory = _workspace(like, workspace_bytes, on_gpu=stream is not None) if workspace_bytes else None
    arguments.workspace, arguments.workspace_bytes, arguments.stream = memory and memory.address, workspace_bytes, stream
    _library.check(library.normjit_launch(kernel.pointer, ctypes.byref(arguments)))


class _HostMemory:
    """Whole pages of host memory. A forked process gets its own copies."""

    def __init__(self, size):
        self.size = size
        self._pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))


class _GpuMemory:
    """Memory from the library of an array."""

    def __init__(self, like, size):
        self._array = _operand.gpu_bytes(like, size)
        self.address = self._array.data_ptr() if hasattr(self._array, "data_ptr") else self._array.data.ptr


_thread = threading.local()


def _workspace(like, size, on_gpu):
    """Returns a workspace. Each thread keeps its CPU workspace for its next launch."""
    if on_gpu:
        return _GpuMemory(like, size)
    if getattr(_thread, "workspace", None) is None or _thread.workspace.size < size:
        _thread.workspace = _HostMemory(size)
    return _thread.workspace
