# SPDX-License-Identifier: Apache-2.0
"""normjit for PyTorch: the backward passes of LayerNorm and RMSNorm, by kernels in the place of torch's own.

    import torch, normjit.torch

    normjit.torch.enable()   # every LayerNorm's backward pass in this process, on CPUs and GPUs, and RMSNorm's on GPUs

What is replaced are the kernels of operators, below autograd: autocast, checkpoints, functorch, DTensor, double backward and
CUDA graphs stay what they are. torch.compile does not call these operators and is left as it is."""
import contextlib
import ctypes
import threading
import warnings

import torch

from normjit import _library
from normjit._library import InvalidArgument, Unavailable

OLDEST_TORCH = (2, 10)
LAYER_NORM_CPU, LAYER_NORM_CUDA, RMS_NORM_CUDA = range(3)  # normjit_torch_kernel
OPERATORS = {
    LAYER_NORM_CPU: ("layer_norm", "cpu", "native_layer_norm_backward", "CPU"),
    LAYER_NORM_CUDA: ("layer_norm", "cuda", "native_layer_norm_backward", "CUDA"),
    RMS_NORM_CUDA: ("rms_norm", "cuda", "_fused_rms_norm_backward", "CUDA"),
}
CPU_INDEX = -1
REASON_BYTES = 1024

_lock = threading.RLock()
_kernels = None  # libnormjit_torch.so
_fallbacks = None  # the torch.library.Library of torch's own kernels
_enabled = set()


def enable(layer_norm=True, rms_norm=True, devices=None, threads="torch"):
    """Gives torch's operators normjit's kernels, until disable(): the backward passes of layer_norm on CPUs and GPUs and of
    rms_norm on GPUs. (rms_norm on CPUs is no operator of torch's but many: see patch().)

    devices  "cpu", "cuda" or both; None: those that normjit can serve here
    threads  whose threads launches on the CPU use: "torch", which is best in a process to itself, or "own", which may be
             better where other processes keep the cores busy

    Raises normjit.Unavailable where nothing, or a device that was named, can be served, with the reason. Calls that normjit
    cannot serve, such as one for a kernel that is not ready while a CUDA graph is captured, go to torch's kernel; report()
    counts them. Done again with other arguments, what they name is enabled beside what was."""
    if threads not in ("torch", "own"):
        raise InvalidArgument(f"threads: {threads!r}; allowed: 'torch', 'own'")
    if isinstance(devices, str):
        devices = (devices,)
    for device in devices or ():
        if device not in ("cpu", "cuda"):
            raise InvalidArgument(f"devices: {device!r}; allowed: 'cpu', 'cuda'")
    with _lock:
        kernels = _load()
        _call(kernels.normjit_torch_choose_threads(threads == "own"))
        reasons = {device: _why_not(device) for device in devices or ("cpu", "cuda")}
        unserved = {device: reason for device, reason in reasons.items() if reason}
        if unserved and (devices is not None or len(unserved) == len(reasons)):
            raise Unavailable("; ".join(f"{device}: {reason}" for device, reason in unserved.items()))
        wanted_norms = {name for name, wanted in (("layer_norm", layer_norm), ("rms_norm", rms_norm)) if wanted}
        for kernel, (norm, device, _, _) in OPERATORS.items():
            if norm in wanted_norms and device in reasons and not reasons[device] and kernel not in _enabled:
                _override(kernel)


def disable():
    """Gives torch's operators their own kernels back."""
    with _lock:
        for kernel in sorted(_enabled):
            _call(_kernels.normjit_torch_override(kernel, 0))
        _enabled.clear()


@contextlib.contextmanager
def enabled(**arguments):
    """enable() for the time of a with statement. It is of the process and not of the thread."""
    with _lock:
        before = set(_enabled)
    enable(**arguments)
    try:
        yield
    finally:
        with _lock:
            for kernel in sorted(_enabled - before):
                _call(_kernels.normjit_torch_override(kernel, 0))
                _enabled.discard(kernel)


def is_enabled():
    """The operators that have normjit's kernels: {("native_layer_norm_backward", "CPU"), ...}."""
    with _lock:
        return {OPERATORS[kernel][2:] for kernel in _enabled}


def report():
    """What normjit did in this process: a dict of what is enabled, how many calls its kernels served, how many they left to
    torch's, and why the last of those was."""
    by_normjit, by_torch = ctypes.c_int64(), ctypes.c_int64()
    reason = ctypes.create_string_buffer(REASON_BYTES)
    if _kernels is not None:
        _kernels.normjit_torch_calls(ctypes.byref(by_normjit), ctypes.byref(by_torch), reason, REASON_BYTES)
    return {"enabled": sorted(is_enabled()), "calls": by_normjit.value, "left_to_torch": by_torch.value,
            "reason": reason.value.decode() or None}


def _call(failed):
    if failed:
        raise _library.Error(_kernels.normjit_torch_last_error().decode())


def _load():
    """The library of kernels, for the libtorch of this process."""
    global _kernels
    if _kernels is None:
        version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
        if version < OLDEST_TORCH:
            raise Unavailable(f"torch {torch.__version__} is too old; normjit needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} "
                              "or newer")
        loaded = _library.load("libnormjit_torch.so")
        loaded.normjit_torch_last_error.restype = ctypes.c_char_p
        _kernels = loaded
    return _kernels


def _why_not(device):
    """Why normjit cannot serve a kind of device here, or None."""
    if device == "cuda":
        if not torch.cuda.is_available():
            return "torch sees no CUDA GPU"
        if torch.version.hip is not None:
            return "torch's GPUs are AMD's, normjit's are NVIDIA's"
        _library.load_nvrtc()
    backend = ctypes.create_string_buffer(64)
    index = CPU_INDEX if device == "cpu" else torch.cuda.current_device()
    if _kernels.normjit_torch_check(index, backend, len(backend)):
        return _kernels.normjit_torch_last_error().decode()
    if backend.value == b"portable":
        return "this build makes no machine code for this CPU, which needs AVX-512 or a normjit with LLVM"
    return None


def _override(kernel):
    _, _, operator, key = OPERATORS[kernel]
    _keep_torch_kernels()
    _spend_warning(operator, key)
    _call(_kernels.normjit_torch_override(kernel, 1))
    _enabled.add(kernel)


def _keep_torch_kernels():
    """Operators of normjit's that call torch's own kernels, for what is left to them."""
    global _fallbacks
    if _fallbacks is not None:
        return
    library = torch.library.Library("normjit", "FRAGMENT")
    for name, operator in (("torch_layer_norm_backward", "native_layer_norm_backward"),
                           ("torch_rms_norm_backward", "_fused_rms_norm_backward")):
        overload = getattr(torch.ops.aten, operator).default
        schema = str(overload._schema)
        library.define(name + schema[schema.index("("):])
        for key in ("CPU", "CUDA"):
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", key):
                library.impl(name, _caller_of(torch.library.get_kernel(overload, key), key), key)
    _fallbacks = library


def _caller_of(kernel, key):
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return lambda *arguments: kernel.call_boxed(keys, *arguments)


def _spend_warning(operator, key):
    """Torch tells stderr of the first kernel of a process that replaces another, once; told to Python it can be ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = torch.library.Library("aten", "IMPL")
        library.impl(operator, lambda *_: None, key)
        library._destroy()
