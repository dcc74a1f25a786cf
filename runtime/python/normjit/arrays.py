# SPDX-License-Identifier: Apache-2.0
"""Gradients of LayerNorm and RMSNorm on arrays of NumPy, CuPy, PyTorch and whatever else speaks DLPack."""
import collections
import ctypes
import functools
import mmap
import threading

from normjit import _library, _operand
from normjit._library import DTYPES, NO_DTYPE, NORMS, ROOM_FOR_TENSORS, TENSORS, InvalidArgument, library

GRADIENTS = ("dx", "dgamma", "dbeta")


Gradients = collections.namedtuple("Gradients", GRADIENTS)
Gradients.__doc__ = "The gradients of x, gamma and beta, None for those that were not computed."


def layer_norm_backward(x, dy, gamma=None, *, mean=None, rstd=None, eps=1e-5, gamma_offset=0.0, dresidual=None,
                        invariant=False, outputs=None, out=None, stream=None):
    """The gradients of y = (x - mean) * rstd * (gamma + gamma_offset) + beta, over the last dimension of x.

    x, dy      arrays of [..., N] of one shape, on a CPU or a CUDA GPU
    gamma      [N], or None for 1
    mean, rstd the statistics of the rows, of x's shape without its last dimension or with 1 in its place; None:
               computed from x, with eps
    dresidual  of x's shape: added to dx
    invariant  a row's dx has the same bits in every batch; slower where rows are few. On a GPU x, dy and dx must then
               start at multiples of 16 bytes, and so must their rows
    outputs    which of "dx", "dgamma" and "dbeta" to compute; None: all, dgamma and dbeta only with a gamma
    out        a mapping of those names to arrays that are written to, all others are made; dx may be x or dy
    stream     of a GPU: a CUDA stream of any library's or its handle; None: the current one of x's library

    Types may differ from array to array, float32, bfloat16 and float16; float64 all alike. Returns Gradients, with None
    for what was not computed. On a GPU they are ready in the order of the stream. Raises normjit.InvalidArgument, a
    ValueError, for what does not fit, and normjit.Unavailable for what this machine cannot do. Thread safe, and others
    run meanwhile."""
    if (mean is None) != (rstd is None):
        raise InvalidArgument("mean and rstd come together")
    inputs = {"x": x, "dy": dy, "gamma": gamma, "mean": mean, "rstd": rstd, "dresidual": dresidual}
    return _backward("layernorm", inputs, eps, gamma_offset, invariant, outputs, out, stream)


def rms_norm_backward(
    x, dy, gamma=None, *, rstd=None, eps=1e-5, gamma_offset=0.0, dresidual=None, invariant=False, outputs=None,
    out=None, stream=None
):
    """The gradients of y = x * rstd * (gamma + gamma_offset), over the last dimension of x, rstd = 1 / sqrt(mean(x^2) +
    eps). gamma_offset=1 is a zero-centred gamma, as in Gemma. All else is as in layer_norm_backward()."""
    inputs = {"x": x, "dy": dy, "gamma": gamma, "rstd": rstd, "dresidual": dresidual}
    return _backward("rmsnorm", inputs, eps, gamma_offset, invariant, outputs, out, stream)


def _backward(norm, inputs, eps, gamma_offset, invariant, outputs, out, stream):
    wanted = _wanted(norm, outputs, inputs["gamma"] is not None, out or {})
    x = inputs["x"]
    on_gpu = hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] != _operand.CPU
    if stream is not None and not on_gpu:
        raise InvalidArgument("stream: x is on the CPU, which has none")
    handle = (_operand.current_stream(x) if stream is None else _operand.stream_handle(stream)) if on_gpu else None
    needed = {name: array for name, array in inputs.items() if array is not None and _reads(name, wanted)}
    operands = {name: _operand.Operand(name, array, handle) for name, array in needed.items()}
    _check_inputs(operands)
    with _operand.on_stream(x, handle) if on_gpu else _Nothing():
        for name in wanted:
            made = (out or {}).get(name)
            if made is None:
                like = inputs["gamma"] if name != "dx" and inputs["gamma"] is not None else x
                made = _operand.empty(like, operands["x"].shape if name == "dx" else operands["x"].shape[-1:])
            operands[name] = _operand.Operand(name, made, handle)
            _check_output(operands[name], operands["x"])
        _launch(norm, operands, eps, gamma_offset, bool(invariant) and "dx" in wanted, handle)
    return Gradients(*(operands[name].array if name in wanted else None for name in GRADIENTS))


class _Nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def _wanted(norm, outputs, has_gamma, out):
    possible = GRADIENTS if norm == "layernorm" else GRADIENTS[:2]
    if outputs is None:
        outputs = set(possible if has_gamma else ("dx",)) | set(out)
    outputs = {outputs} if isinstance(outputs, str) else set(outputs)
    for what, names in (("outputs", outputs), ("out", set(out))):
        if names - set(possible):
            raise InvalidArgument(f"{what}: {', '.join(sorted(names - set(possible)))}; allowed: {', '.join(possible)}")
    if set(out) - outputs:
        raise InvalidArgument(f"out: {', '.join(sorted(set(out) - outputs))}: not among the outputs")
    if not outputs:
        raise InvalidArgument(f"outputs: none; allowed: {', '.join(possible)}")
    if "dgamma" in outputs and not has_gamma:
        raise InvalidArgument("outputs: dgamma: there is no gamma")
    return [name for name in GRADIENTS if name in outputs]


def _reads(name, wanted):
    """Whether a gradient that is wanted depends on an input. x and dy say the shape in any case."""
    if name in ("mean", "rstd"):
        return "dx" in wanted or "dgamma" in wanted
    return name in ("x", "dy") or "dx" in wanted


def _check_inputs(operands):
    x = operands["x"]
    if not x.shape:
        raise InvalidArgument("x: has no dimensions; the last must be the normalised one")
    for name, operand in operands.items():
        if operand.device != x.device:
            raise InvalidArgument(f"{name}: is on {operand.device}; x is on {x.device}")
        if name in ("dy", "dresidual") and operand.shape != x.shape:
            raise InvalidArgument(f"{name}: its shape is {operand.shape}; must be that of x, {x.shape}")
        if name == "gamma" and operand.shape != x.shape[-1:]:
            raise InvalidArgument(f"gamma: its shape is {operand.shape}; must be {x.shape[-1:]}")
        if name in ("mean", "rstd") and operand.shape not in (x.shape[:-1], (*x.shape[:-1], 1)):
            raise InvalidArgument(
                f"{name}: its shape is {operand.shape}; must be {x.shape[:-1]} or {(*x.shape[:-1], 1)}"
            )


def _check_output(operand, x):
    name, shape = operand.name, x.shape if operand.name == "dx" else x.shape[-1:]
    if operand.shape != shape:
        raise InvalidArgument(f"out: {name}: its shape is {operand.shape}; must be {shape}")
    if operand.device != x.device:
        raise InvalidArgument(f"out: {name}: is on {operand.device}; x is on {x.device}")
    if operand.read_only:
        raise InvalidArgument(f"out: {name}: cannot be written to")


@functools.lru_cache(maxsize=512)
def _kernel(device, norm, cols, dtypes, recompute, eps, gamma_offset, invariant, stream):
    spec = _library.Spec(
        norm=NORMS.index(norm), rows=-1, cols=cols, stats=recompute, eps=eps, gamma_offset=gamma_offset,
        invariant=invariant,
    )
    spec.dtypes = (ctypes.c_int32 * ROOM_FOR_TENSORS)(*dtypes)
    return _library.Kernel(_library.engine(device), spec, stream)


def _launch(norm, operands, eps, gamma_offset, invariant, stream):
    x = operands["x"]
    dtypes = [NO_DTYPE] * ROOM_FOR_TENSORS
    for name, operand in operands.items():
        dtypes[TENSORS.index(name)] = DTYPES.index(operand.dtype)
    recompute = "rstd" not in operands and ("dx" in operands or "dgamma" in operands)
    kernel = _kernel(x.device, norm, x.shape[-1], tuple(dtypes), recompute, float(eps) if recompute else 0.0,
                     float(gamma_offset) if "gamma" in operands else 0.0, invariant, stream)
    arguments = _library.Arguments()
    for name, operand in operands.items():
        _library.check(library.normjit_set_dlpack(kernel.pointer, ctypes.byref(arguments), TENSORS.index(name),
                                                  ctypes.byref(operand.tensor)))
    size = kernel.workspace(arguments.rows)
    memory = _workspace(x.array, size, on_gpu=stream is not None)
    arguments.workspace, arguments.workspace_bytes, arguments.stream = memory.address, size, stream
    _library.check(library.normjit_launch(kernel.pointer, ctypes.byref(arguments)))


class _HostMemory:
    """Whole pages."""

    def __init__(self, size):
        self.size = size
        self._pages = mmap.mmap(-1, max(size, 1))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))


class _GpuMemory:
    """From the library of an array."""

    def __init__(self, like, size):
        self._array = _operand.gpu_bytes(like, max(size, 1))
        self.address = self._array.data_ptr() if hasattr(self._array, "data_ptr") else self._array.data.ptr


_thread = threading.local()


def _workspace(like, size, on_gpu):
    """A thread keeps that of the CPU for its next launch."""
    if on_gpu:
        return _GpuMemory(like, size)
    if getattr(_thread, "workspace", None) is None or _thread.workspace.size < size:
        _thread.workspace = _HostMemory(size)
    return _thread.workspace
