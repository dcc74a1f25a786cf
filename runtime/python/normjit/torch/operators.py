# SPDX-License-Identifier: Apache-2.0
"""torch.ops.normjit.layer_norm_backward and rms_norm_backward: what aten's have, with the gradient of a residual stream
added into dx, statistics computed again from x where none are given, and zero-centred weights. They have no derivative
of their own; normjit.torch.functional guards that. The operators called _into add the gradients of weight and bias to
the tensors dweight and dbias where these are given, and return none for them. torch.ops.normjit.layer_norm and rms_norm
are the norms themselves, of x + residual where there is one: y, that sum or none, and, if asked, the statistics."""
import torch

from normjit.torch import _kernels

SCHEMAS = {
    "layer_norm_backward": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? mean, Tensor? rstd, Tensor? weight, "
    "Tensor? bias, Tensor? dresidual, float eps, float weight_offset, bool[3] output_mask) "
    "-> (Tensor, Tensor, Tensor)",
    "rms_norm_backward": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? rstd, Tensor? weight, Tensor? dresidual, "
    "float eps, float weight_offset, bool[2] output_mask) -> (Tensor, Tensor)",
    "layer_norm": "(Tensor x, Tensor? residual, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps, "
    "float weight_offset, bool statistics) -> (Tensor, Tensor, Tensor, Tensor)",
    "rms_norm": "(Tensor x, Tensor? residual, SymInt[] normalized_shape, Tensor? weight, float eps, float weight_offset, "
    "bool statistics) -> (Tensor, Tensor, Tensor)",
    "layer_norm_backward_into": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? mean, Tensor? rstd, "
    "Tensor? weight, Tensor? bias, Tensor? dresidual, Tensor(a!)? dweight, Tensor(b!)? dbias, float eps, "
    "float weight_offset, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    "rms_norm_backward_into": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? rstd, Tensor? weight, "
    "Tensor? dresidual, Tensor(a!)? dweight, float eps, float weight_offset, bool[2] output_mask) -> (Tensor, Tensor)",
}
KERNELS = {"cpu": (3, 5, 7, 9, 11, 13), "cuda": (4, 6, 8, 10, 12, 14)}  # by normjit_torch_kernel

served = set()  # the types of devices that the operators have kernels for; empty until register()
_library = None


def register():
    """Defines the operators, once a process, for the devices that normjit can serve here. Raises Unavailable when there
    is none."""
    global _library
    with _kernels.lock:
        if served:
            return
        reasons = {device: _kernels.why_not(device) for device in KERNELS}
        if all(reasons.values()):
            raise _kernels.Unavailable("; ".join(f"{device}: {reason}" for device, reason in reasons.items()))
        made = torch.library.Library("normjit", "FRAGMENT")
        for name, schema in SCHEMAS.items():
            made.define(name + schema, tags=[torch.Tag.pt2_compliant_tag])
        for name, fake in FAKES.items():
            torch.library.register_fake(f"normjit::{name}", fake, lib=made)
        able = [device for device in KERNELS if not reasons[device]]
        for device in able:
            for kernel in KERNELS[device]:
                _kernels.call("register", kernel, 1)
        _library = made
        served.update(able)


def serves(device):
    """Whether they have kernels for a type of device. Defines them where that has not been done: also in a process that
    was sent a patched model, or loads it, and while torch traces the first call."""
    if not served:
        register()
    return device in served


# What torch.compiler.assume_constant_result() does, but for its import of torch._dynamo: 1.6 s of every process.
serves._dynamo_marked_constant = True


def _fake_layer_norm(dy, x, normalized_shape, mean, rstd, weight, bias, dresidual, eps, weight_offset, output_mask):
    beta_like = weight if bias is None else bias
    return _fake(x, output_mask, (x, weight, beta_like))


def _fake_rms_norm(dy, x, normalized_shape, rstd, weight, dresidual, eps, weight_offset, output_mask):
    return _fake(x, output_mask, (x, weight))


def _fake_layer_norm_into(
    dy, x, normalized_shape, mean, rstd, weight, bias, dresidual, dweight, dbias, eps, weight_offset, output_mask
):
    beta_like = weight if bias is None else bias
    return _fake(x, output_mask, (x, weight if dweight is None else None, beta_like if dbias is None else None))


def _fake_rms_norm_into(
    dy, x, normalized_shape, rstd, weight, dresidual, dweight, eps, weight_offset, output_mask
):
    return _fake(x, output_mask, (x, weight if dweight is None else None))


def _fake(x, output_mask, likes):
    return tuple(x.new_empty(like.shape, dtype=like.dtype) if wanted and like is not None else None
                 for wanted, like in zip(output_mask, likes))


def _fake_layer_norm_itself(x, residual, normalized_shape, weight, bias, eps, weight_offset, statistics):
    y, h, rstd = _fake_rms_norm_itself(x, residual, normalized_shape, weight, eps, weight_offset, statistics)
    return y, h, None if rstd is None else torch.empty_like(rstd), rstd


def _fake_rms_norm_itself(x, residual, normalized_shape, weight, eps, weight_offset, statistics):
    shape = (*x.shape[: x.dim() - len(normalized_shape)], *(1 for _ in normalized_shape))
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (x.new_empty(x.shape), None if residual is None else x.new_empty(x.shape),
            x.new_empty(shape, dtype=wide) if statistics else None)


FAKES = {"layer_norm_backward": _fake_layer_norm, "rms_norm_backward": _fake_rms_norm,
         "layer_norm_backward_into": _fake_layer_norm_into, "rms_norm_backward_into": _fake_rms_norm_into,
         "layer_norm": _fake_layer_norm_itself, "rms_norm": _fake_rms_norm_itself}
