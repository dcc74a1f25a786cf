# SPDX-License-Identifier: Apache-2.0
"""layer_norm and rms_norm with normjit's backward pass, eager and compiled, with the residual stream's addition before
them; and as modules."""
import torch

from normjit.torch import _kernels, operators


def layer_norm(x, weight=None, bias=None, *, eps=1e-5, residual=None):
    """layer_norm over the last dimension. With a residual: (y, x + residual), y of that sum, and one backward pass for
    both. Gradients are normjit's on CPUs and NVIDIA GPUs, eager and under torch.compile; torch's second derivatives."""
    return _apply("layernorm", x, weight, bias, eps, 0.0, residual)


def rms_norm(x, weight=None, *, eps=1e-5, weight_offset=0.0, residual=None):
    """x * rsqrt(mean(x^2) + eps) * (weight + weight_offset) over the last dimension, computed in f32 and rounded once;
    weight_offset=1 is a zero-centred weight, as in Gemma. All else is as in layer_norm()."""
    return _apply("rmsnorm", x, weight, None, eps, weight_offset, residual)


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm of one dimension by layer_norm(); forward(x, residual=None)."""

    has_backward = can_torch_compile = True  # for Hugging Face's kernels

    def forward(self, x, residual=None):
        if len(self.normalized_shape) != 1:
            raise ValueError(f"normalized_shape: {tuple(self.normalized_shape)}; must be one dimension")
        return layer_norm(x, self.weight, self.bias, eps=self.eps, residual=residual)


class RMSNorm(torch.nn.Module):
    """rms_norm() with a weight of ones, or of zeros with weight_offset=1; forward(x, residual=None)."""

    has_backward = can_torch_compile = True

    def __init__(self, size, eps=1e-5, weight_offset=0.0, device=None, dtype=None):
        super().__init__()
        self.eps, self.weight_offset = eps, weight_offset
        self.weight = torch.nn.Parameter(torch.full((size,), 1.0 - weight_offset, device=device, dtype=dtype))

    def forward(self, x, residual=None):
        return rms_norm(x, self.weight, eps=self.eps, weight_offset=self.weight_offset, residual=residual)

    def extra_repr(self):
        return f"{self.weight.numel()}, eps={self.eps}, weight_offset={self.weight_offset}"


def formula(norm, x, weight, bias, eps, weight_offset):
    """The forward pass in torch's operators."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    h = x.to(wide)
    if norm == "layernorm":
        return torch.nn.functional.layer_norm(
            h, h.shape[-1:], *(t if t is None else t.to(wide) for t in (weight, bias)), eps
        ).to(x.dtype)
    y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * (weight.to(wide) + weight_offset)).to(x.dtype)


def _apply(norm, x, weight, bias, eps, weight_offset, residual):
    if not operators.served:
        operators.register()
    if x.device.type not in operators.served:
        raise _kernels.Unavailable(f"x: is on {x.device}; {_kernels.why_not(x.device.type)}")
    return Norm.apply(x, residual, weight, bias, norm, eps, weight_offset, None)


class Norm(torch.autograd.Function):
    """The norm of x; with a residual (y, h), the norm of h = x + residual. `forward_of`: what computes y instead of
    formula()."""

    @staticmethod
    def forward(x, residual, weight, bias, norm, eps, weight_offset, forward_of):
        h = x if residual is None else x + residual
        y = formula(norm, h, weight, bias, eps, weight_offset) if forward_of is None else forward_of(h)
        return y if residual is None else (y, h)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, residual, weight, bias, ctx.norm, ctx.eps, ctx.weight_offset, _ = inputs
        ctx.has_residual = residual is not None
        ctx.save_for_backward(output[1] if ctx.has_residual else x, weight, bias)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dy, dh=None):
        h, weight, bias = ctx.saved_tensors
        wants_h = ctx.needs_input_grad[0] or (ctx.has_residual and ctx.needs_input_grad[1])
        if dy is None:
            gradients = (dh, None, None)
        elif torch.is_grad_enabled():  # ours have no derivatives
            gradients = _differentiable(ctx, h, weight, bias, dy, dh)
        else:
            mask = [wants_h, ctx.needs_input_grad[2], ctx.needs_input_grad[3]]
            gradients = _by_normjit(ctx, h, weight, bias, dy, dh, mask)
        dx, dweight, dbias = gradients
        return dx, dx if ctx.has_residual else None, dweight, dbias, None, None, None, None


def _by_normjit(ctx, h, weight, bias, dy, dh, mask):
    shape = h.shape[-1:]
    if ctx.norm == "rmsnorm":
        dx, dweight = torch.ops.normjit.rms_norm_backward(
            dy, h, shape, None, weight, dh, ctx.eps, ctx.weight_offset, mask[:2]
        )
        return dx, dweight, None
    return torch.ops.normjit.layer_norm_backward(
        dy, h, shape, None, None, weight, bias, dh, ctx.eps, ctx.weight_offset, mask
    )


def _differentiable(ctx, h, weight, bias, dy, dh):
    """The same gradients by operators that have derivatives, for double backward."""
    inputs = [h, *(t for t in (weight, bias) if t is not None)]
    with torch.enable_grad():
        y = formula(ctx.norm, h, weight, bias, ctx.eps, ctx.weight_offset)
        wanted = [t for t in inputs if t.requires_grad]
        found = iter(torch.autograd.grad(y, wanted, dy.to(y.dtype), create_graph=True))
        dx, dweight, dbias = (next(found) if t is not None and t.requires_grad else None for t in (h, weight, bias))
        return (dx if dh is None or dx is None else dx + dh), dweight, dbias
