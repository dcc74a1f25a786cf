# SPDX-License-Identifier: Apache-2.0
"""libnormjit_torch.so, the functions of normjit/torch.h, for the libtorch of this process."""
from __future__ import annotations

import ctypes
import functools
import threading

import torch

from normjit import _library
from normjit._library import Unavailable

OLDEST_TORCH = (2, 10)
CPU_INDEX = -1
REASON_BYTES = 1024

lock = threading.RLock()  # protects what this process has registered with torch


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise Unavailable(
            f"torch {torch.__version__} is too old; normjit needs torch {'.'.join(map(str, OLDEST_TORCH))} or " "newer"
        )
    loaded = _library.load("libnormjit_torch.so")
    loaded.normjit_torch_last_error.restype = ctypes.c_char_p
    loaded.normjit_torch_calls.restype = None
    loaded.normjit_torch_keep_bits.restype = None
    loaded.normjit_torch_set_log.restype = None
    loaded.normjit_torch_set_log(_library.LOG)
    return loaded


def call(name: str, *arguments: object) -> None:
    """Calls normjit_torch_<name>(). Raises the error that it reports."""
    is_wrong = getattr(load(), f"normjit_torch_{name}")(*arguments)
    _library.tell_warnings()
    if is_wrong:
        raise _library.Error(load().normjit_torch_last_error().decode(errors="replace"))


def why_not(device: str) -> str | None:
    """Returns why normjit cannot serve a kind of device here, or None."""
    if device not in ("cpu", "cuda"):
        return "normjit serves cpu and cuda"
    if device == "cuda":
        if not torch.cuda.is_available():
            return "torch sees no CUDA GPU"
        if torch.version.hip is not None:
            return "torch's GPUs are AMD's, normjit's are NVIDIA's"
        _library.load_nvrtc()
    backend = ctypes.create_string_buffer(64)
    index = CPU_INDEX if device == "cpu" else torch.cuda.current_device()
    try:
        call("check", index, backend, len(backend))
    except _library.Error as error:
        return str(error)
    if backend.value == b"portable":
        return "this build makes no machine code for this CPU, which needs AVX-512 or a normjit with LLVM"
    return None


_keeps_bits = False


def batch_invariant(on: bool = True) -> None:
    """Makes normjit's later launches for torch give a row the same bits in every batch: for any number of rows, and any
    position of the row. That holds for y, h, statistics and dx, in operators, patched modules, formulas and, if it
    is set before torch.compile(backend="normjit") compiles, its regions; but not for calls that are left to torch,
    which report() counts. Launches of few rows are slower then, because threads may not share parts of a row. Thread
    safe; it applies to the whole process."""
    global _keeps_bits
    if not isinstance(on, bool):
        raise _library.InvalidArgument(f"on: {on!r}; must be True or False")
    with lock:
        load().normjit_torch_keep_bits(int(on))
        _keeps_bits = on


def is_batch_invariant() -> bool:
    """Returns what batch_invariant() chose last."""
    return _keeps_bits


def threads() -> str:
    """Returns the number of threads that CPU launches use, and whose threads they are."""
    count, whose = ctypes.c_int32(), ctypes.create_string_buffer(REASON_BYTES)
    call("threads", ctypes.byref(count), whose, ctypes.c_size_t(REASON_BYTES))
    return f"{count.value}, {whose.value.decode()}"


def counts() -> tuple[int, int, str | None]:
    """Returns how many calls normjit's kernels served, how many they left to torch's, and the reason for the last of
    those, or None."""
    by_normjit, by_torch = ctypes.c_int64(), ctypes.c_int64()
    reason = ctypes.create_string_buffer(REASON_BYTES)
    load().normjit_torch_calls(ctypes.byref(by_normjit), ctypes.byref(by_torch), reason, ctypes.c_size_t(REASON_BYTES))
    return by_normjit.value, by_torch.value, reason.value.decode(errors="replace") or None
