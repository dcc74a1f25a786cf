# SPDX-License-Identifier: Apache-2.0
"""normjit for PyTorch: the backward passes of LayerNorm and RMSNorm.

    import torch, normjit.torch

    normjit.torch.enable()               # every LayerNorm of this process, on CPUs and GPUs, and torch's RMSNorms on GPUs
    model = normjit.torch.patch(model)   # norms that are written in Python, found by what they compute

enable() replaces the kernels of operators, below autograd: autocast, checkpoints, functorch, DTensor, double backward and CUDA
graphs stay what they are. torch.compile does not call these operators and is left as it is."""
from normjit.torch import _kernels
from normjit.torch.functional import LayerNorm, RMSNorm, layer_norm, rms_norm
from normjit.torch.memory import keep_host_memory, prepare
from normjit.torch.override import disable, enable, enabled, is_enabled
from normjit.torch.patches import Found, found, patch, unpatch

__all__ = ["Found", "LayerNorm", "RMSNorm", "disable", "enable", "enabled", "found", "is_enabled", "keep_host_memory",
           "layer_norm", "patch", "prepare", "report", "rms_norm", "unpatch"]


def report():
    """What normjit did in this process: a dict of the operators that have its kernels, how many calls these served, how many
    they left to torch's, and why the last of those was."""
    calls, left_to_torch, reason = _kernels.counts()
    return {"enabled": sorted(is_enabled()), "calls": calls, "left_to_torch": left_to_torch, "reason": reason}
