# SPDX-License-Identifier: Apache-2.0
"""normjit for PyTorch: the backward passes of LayerNorm and RMSNorm.

    import torch, normjit.torch

    normjit.torch.enable()               # every LayerNorm of this process, RMSNorms on GPUs
    model = normjit.torch.patch(model)   # norms that are written in Python, found by what they compute

enable() replaces the kernels of operators, below autograd: autocast, checkpoints, functorch, DTensor, double backward
and CUDA graphs stay what they are. torch.compile does not call these operators and is left as it is."""
import torch

from normjit.torch import _kernels
from normjit.torch.functional import LayerNorm, RMSNorm, layer_norm, rms_norm
from normjit.torch.memory import keep_host_memory, prepare
from normjit.torch.override import disable, enable, enabled, is_enabled
from normjit.torch.patches import Found, found, patch, unpatch

__all__ = ["Found", "LayerNorm", "RMSNorm", "disable", "enable", "enabled", "found", "is_enabled", "keep_host_memory",
           "layer_norm", "patch", "prepare", "report", "rms_norm", "unpatch"]


def report(model=None):
    """What normjit did in this process, as a dict: the operators that have its kernels, how many calls these served,
    how many they left to torch's, and why the last of those was. With a model also "norms": of each one (name, class,
    whose its backward pass is)."""
    calls, left_to_torch, reason = _kernels.counts()
    enabled_now = is_enabled()
    facts = {"enabled": sorted(enabled_now), "calls": calls, "left_to_torch": left_to_torch, "reason": reason}
    if model is not None:
        facts["norms"] = [(each.name, each.kind, _whose(each, model.get_submodule(each.name), enabled_now))
                          for each in found(model)]
    return facts


def _whose(norm, module, enabled_now):
    """Whose the backward pass of a norm of a model is."""
    if norm.patched:
        return "normjit's, by patch()"
    if isinstance(module, (LayerNorm, RMSNorm)):
        return "normjit's"
    operator = {torch.nn.LayerNorm: "native_layer_norm_backward", torch.nn.RMSNorm: "_fused_rms_norm_backward"}.get(
        type(module)
    )
    device = next((p.device.type.upper() for p in module.parameters()), None)
    if (operator, device) in enabled_now:
        return "normjit's, by enable()"
    if norm.reason is None:
        return f"torch's: {'enable' if type(module) is torch.nn.LayerNorm else 'patch'}() would make it normjit's"
    return f"torch's: {norm.reason}"
