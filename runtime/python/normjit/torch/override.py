# SPDX-License-Identifier: Apache-2.0
"""normjit's kernels in place of torch's own: enable() and disable()."""
from __future__ import annotations

import collections.abc
import contextlib
import warnings

import torch

from normjit._library import InvalidArgument, Unavailable
from normjit.log import logger
from normjit.torch import _kernels, log

OPERATORS = {  # and their numbers in normjit_torch_kernel
    0: ("layer_norm", "cpu", "native_layer_norm_backward", "CPU"),
    1: ("layer_norm", "cuda", "native_layer_norm_backward", "CUDA"),
    2: ("rms_norm", "cuda", "_fused_rms_norm_backward", "CUDA"),
}
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    Device = Union[str, torch.device]
    Devices = Union[Device, collections.abc.Iterable[Device], None]

DEVICES = ("cpu", "cuda")
THREADS = (None, "automatic", "own", "openmp")  # indexed by normjit_thread_policy

_lock = _kernels.lock
_fallbacks: torch.library.Library | None = None  # the torch.library.Library of torch's own kernels
_enabled: set[int] = set()
_threads = 0  # the policy that the last enable() chose


def enable(layer_norm: bool = True, rms_norm: bool = True, devices: Devices = None, threads: str | None = None) -> None:
    """Gives torch's operators normjit's kernels, until disable(): the backward passes of layer_norm on CPUs and GPUs
    and of rms_norm on GPUs. (On CPUs torch composes rms_norm from many operators: see patch().)

    devices  "cpu", "cuda", "cuda:0", a torch.device, or several of these; None: every device that normjit can serve
             here. Torch has one kernel for all GPUs: a GPU with a number must exist, and all GPUs are served
    threads  whose threads CPU launches use: "openmp" for torch's, "own" for normjit's, "automatic" for torch's if its
             OpenMP runtime is loaded, else normjit's; None: from NORMJIT_THREADS, else automatic

    Raises normjit.Unavailable with the reason if nothing, or a named device, can be served. A call that normjit cannot
    serve goes to torch's kernel, for example if it needs a new kernel while a CUDA graph is captured; report() counts
    these calls. Further calls enable further devices. Call it, like disable(), while no thread is in a backward pass:
    torch reads its table of kernels without a lock."""
    if threads not in THREADS:
        raise InvalidArgument(f"threads: {threads!r}; allowed: {', '.join(map(repr, THREADS))}")
    kinds = None if devices is None else _kinds(devices)
    with _lock:
        served = _served_with(THREADS.index(threads), kinds)
        norms = {name for name, wanted in (("layer_norm", layer_norm), ("rms_norm", rms_norm)) if wanted}
        wanted = [kernel for kernel, (norm, device, _, _) in OPERATORS.items() if norm in norms and device in served]
        if norms and not wanted:
            raise Unavailable("rms_norm: torch has no operator of it on CPUs that normjit could replace; patch(model) serves it")
        for kernel in wanted:
            if kernel not in _enabled:
                _override(kernel)


def _kinds(devices: Any) -> list[str]:
    """Returns the kinds of the named devices, without duplicates."""
    is_one = isinstance(devices, (str, torch.device)) or not isinstance(devices, collections.abc.Iterable)
    named = [devices] if is_one else list(devices)
    found = [device for device in map(_device, named) if device is not None]
    if not named or len(found) < len(named):
        wrong = [repr(each) for each in named if _device(each) is None]
        raise InvalidArgument(f"devices: {', '.join(wrong) or 'none'}; allowed: 'cpu', 'cuda', 'cuda:0' and so on, "
                              "torch.device of these, or several of them")
    count = torch.cuda.device_count()
    for device in found:
        if device.type == "cuda" and count and (device.index or 0) >= count:
            raise Unavailable(f"{device}: torch sees {count} CUDA GPUs")
    return list(dict.fromkeys(device.type for device in found))


def _device(named: object) -> torch.device | None:
    """Returns the torch.device with this name; None if there is none, or if normjit never serves it."""
    if not isinstance(named, (str, torch.device)):
        return None
    try:
        device = torch.device(named)
    except RuntimeError:
        return None
    return device if device.type in DEVICES else None


def _served_with(threads: int, devices: list[str] | None) -> set[str]:
    """Sets the thread policy, given as a number, and returns the devices that normjit can serve, which must include all
    named ones. If it raises, the threads stay as they were."""
    global _threads
    _kernels.call("choose_threads", threads)  # this decides whether a CPU can be served
    try:
        reasons = {device: _kernels.why_not(device) for device in devices or DEVICES}
        unserved = {device: reason for device, reason in reasons.items() if reason}
        if unserved and (devices is not None or len(unserved) == len(reasons)):
            raise Unavailable("; ".join(f"{device}: {reason}" for device, reason in unserved.items()))
    except BaseException:
        _kernels.call("choose_threads", _threads)
        raise
    _threads = threads
    return reasons.keys() - unserved.keys()


def disable() -> None:
    """Restores the kernels of torch's operators."""
    with _lock:
        for kernel in sorted(_enabled):
            _give_back(kernel)


@contextlib.contextmanager
def enabled(layer_norm: bool = True, rms_norm: bool = True, devices: Devices = None,
            threads: str | None = None) -> collections.abc.Iterator[None]:
    """Enables normjit inside a with statement, for the whole process and not only for the thread."""
    with _lock:
        before = set(_enabled)
    enable(layer_norm, rms_norm, devices, threads)
    try:
        yield
    finally:
        with _lock:
            for kernel in sorted(_enabled - before):
                _give_back(kernel)


@contextlib.contextmanager
def disabled() -> collections.abc.Iterator[None]:
    """Disables normjit inside a with statement, for the whole process and not only for the thread."""
    with _lock:
        before = set(_enabled)
        disable()
    try:
        yield
    finally:
        with _lock:
            for kernel in sorted(before - _enabled):
                _override(kernel)


def is_enabled() -> bool:
    """True if any of torch's operators has normjit's kernel; enabled_operators() says which."""
    return bool(enabled_operators())


def enabled_operators() -> set[tuple[str, str]]:
    """Returns the operators that have normjit's kernels: {("native_layer_norm_backward", "CPU"), ...}."""
    with _lock:
        return {OPERATORS[kernel][2:] for kernel in _enabled}


def _override(kernel: int) -> None:
    _keep_torch_kernels()
    _kernels.call("register", kernel, 1)
    _enabled.add(kernel)
    logger.info("%s on %s has normjit's kernel", *OPERATORS[kernel][2:])


def _give_back(kernel: int) -> None:
    _kernels.call("register", kernel, 0)
    _enabled.discard(kernel)
    logger.info("%s on %s has torch's kernel again", *OPERATORS[kernel][2:])


def _keep_torch_kernels() -> None:
    """Defines operators of normjit that call torch's own kernels, for calls that are left to those."""
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
                library.impl(name, _caller_of(operator, torch.library.get_kernel(overload, key), key), key)
    _spend_warning(library)
    _fallbacks = library


def _caller_of(operator: str, kernel: Any, key: str) -> collections.abc.Callable[..., Any]:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def call(*arguments: object) -> Any:
        log.left_to_torch(f"{operator} on {key}", _kernels.counts()[2])
        return kernel.call_boxed(keys, *arguments)

    return call


def _spend_warning(library: torch.library.Library) -> None:
    """Uses up a warning that torch prints to stderr once per process, when the first kernel replaces another; Python
    can ignore it. This replaces a kernel of one of our own operators, because other threads may be calling torch's."""
    library.define("replaced() -> ()")
    library.impl("replaced", lambda: None, "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("replaced", lambda: None, "CPU", allow_override=True)
