# SPDX-License-Identifier: Apache-2.0
"""normjit for PyTorch: the backward passes of LayerNorm and RMSNorm.

    import torch, normjit.torch

    normjit.torch.enable()               # every LayerNorm of this process, RMSNorms on GPUs
    model = normjit.torch.patch(model)   # norms that are written in Python, found by what they compute
    model = torch.compile(model, backend="normjit")   # row-wise regions of compiled graphs

enable() replaces the kernels of operators, below autograd: autocast, checkpoints, functorch, DTensor, double backward
and CUDA graphs work as before. torch.compile does not call these operators; its backend "normjit" is graph.py."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from normjit import _library
from normjit._library import InvalidArgument, counted

_library.require("torch", "2.10", by="normjit.torch")
import torch  # noqa: E402

from normjit.torch import _kernels, formula_operators, graph_operator, sources  # noqa: E402
from normjit.torch._kernels import batch_invariant, is_batch_invariant  # noqa: E402
from normjit.torch.announcement import announce  # noqa: E402
from normjit.torch.formulas import Norm, formula  # noqa: E402
from normjit.torch.functional import layer_norm, rms_norm  # noqa: E402
from normjit.torch.memory import keep_host_memory, prepare  # noqa: E402
from normjit.torch.modules import LayerNorm, RMSNorm, checked_dtype  # noqa: E402
from normjit.torch.override import disable, enable, enabled, enabled_operators, is_enabled  # noqa: E402
from normjit.torch.patches import calls_left, patch, unpatch  # noqa: E402
from normjit.torch.recognition import Found, found, parameters_of_norm, vectors  # noqa: E402
from normjit.torch.recognition import has_layer_of_hub, has_patched_class  # noqa: E402
from normjit.torch.rowwise import rowwise  # noqa: E402
from normjit.torch.speed import times_torchs  # noqa: E402

announce()
formula_operators.register()  # graphs that torch loads from a file call these operators
graph_operator.register()

__all__ = ["Found", "GraphPass", "LayerNorm", "Norm", "RMSNorm", "batch_invariant", "disable", "enable", "enabled",
           "enabled_operators", "formula", "found", "graph_report", "is_batch_invariant", "is_enabled",
           "keep_host_memory", "layer_norm", "patch", "prepare", "report", "rms_norm", "rowwise", "unpatch"]


def __getattr__(name: str) -> Any:
    if name in ("GraphPass", "graph_report"):
        from normjit.torch import graph  # imports torch._inductor, which takes seconds

        return getattr(graph, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def report(model: torch.nn.Module | None = None, rows: int | None = None,
           dtype: torch.dtype | None = None) -> dict[str, Any]:
    """Returns what normjit did in this process, as a dict: the operators that have its kernels, how many calls these
    served and how many they left to torch's, with the last reason, and whose threads CPU launches use. With a model it
    adds "norms": for each norm its name, its class, and who computes its backward pass, in eager mode; graph_report()
    says what the graphs of torch.compile(backend="normjit") contain. "left_to_modules" counts the calls of patched
    modules with a gradient that were left to the modules' own forward, by reason.

    With `rows`, the tokens of a batch, each norm also gets the speed-up of normjit's kernels over torch's operators for
    its backward pass, for inputs of that many rows and of `dtype` (None: the weight's); None without a weight or a
    kernel of normjit's. It is measured during the call, in 0.2 s for each kind and size of norm, during which the
    process should do nothing else: torch's operators have their own kernels meanwhile."""
    if rows is not None and not (hasattr(rows, "__index__") and rows >= 1):
        raise InvalidArgument(f"rows: {rows!r}; must be an int of at least 1")
    dtype = checked_dtype(dtype)
    calls, left_to_torch, reason = _kernels.counts()
    enabled_now = enabled_operators()
    facts = {"enabled": sorted(enabled_now), "calls": calls, "left_to_torch": left_to_torch, "reason": reason,
             "left_to_modules": dict(calls_left()), "threads": _kernels.threads()}
    if model is not None:
        norms = [(each, model.get_submodule(each.name)) for each in found(model)]
        speed = functools.lru_cache(maxsize=None)(times_torchs)
        facts["norms"] = [
            (each.name, each.kind, _whose(each, module, _device(module, model), enabled_now))
            + (() if rows is None else (_times_torchs(speed, each, module, rows, dtype),))
            for each, module in norms
        ]
    return facts


def _times_torchs(speed: Callable[..., float], norm: Found, module: torch.nn.Module, rows: int,
                  dtype: torch.dtype | None) -> float | None:
    weight, bias = parameters_of_norm(module)
    ours = {LayerNorm: "layernorm", RMSNorm: "rmsnorm"}.get(type(module))
    kind = ours or norm.norm
    if kind not in ("layernorm", "rmsnorm") or weight is None or _kernels.why_not(weight.device.type) is not None:
        return None
    offset = getattr(module, "weight_offset", 0.0) if ours else norm.weight_offset
    return speed(kind, rows, weight.numel(), dtype or weight.dtype, weight.dtype, bias is not None,
                 str(weight.device), offset)


def _device(module: torch.nn.Module, model: torch.nn.Module) -> str:
    return next((p.device.type for each in (module, model) for p in each.parameters()), "cpu").upper()


def _whose(norm: Found, module: torch.nn.Module, device: str, enabled_now: set[tuple[str, str]]) -> str:
    """Says who computes the backward pass of a model's norm on a device, "CPU" or "CUDA"."""
    if norm.patched:
        left = calls_left(module)
        count = sum(left.values())
        calls = f"{counted(count, 'call')} {'was' if count == 1 else 'were'}"
        return "normjit's, by patch()" + (f", but {calls} left to its own forward: {'; '.join(left)}" if left else "")
    if isinstance(module, (LayerNorm, RMSNorm)):
        return "normjit's"
    if has_layer_of_hub(module):
        return "normjit's, by kernelize()"
    forward: Any = None if "forward" in vars(module) else type(module).forward
    is_layer_norm = forward is torch.nn.LayerNorm.forward
    operators: dict[Any, str] = {torch.nn.LayerNorm.forward: "native_layer_norm_backward",
                                 torch.nn.RMSNorm.forward: "_fused_rms_norm_backward"}
    operator = operators.get(forward)
    if operator is not None and (operator, device) in enabled_now:
        return "normjit's, by enable()"
    reason = norm.reason
    if reason is None or (is_layer_norm and not vectors(module)):
        reason = f"{'enable' if is_layer_norm else 'patch'}() would make it normjit's"
    if has_patched_class(module) and "forward" in vars(module):
        return f"normjit's where it calls the forward of patch(); else torch's: {reason}"
    calls_layer_norm = isinstance(module, torch.nn.LayerNorm) or sources.names(forward, "layer_norm")
    if calls_layer_norm and ("native_layer_norm_backward", device) in enabled_now:
        return f"normjit's where it calls layer_norm, by enable(); else torch's: {reason}"
    return f"torch's: {reason}"
