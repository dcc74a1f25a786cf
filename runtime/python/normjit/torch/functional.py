# SPDX-License-Identifier: Apache-2.0
"""layer_norm and rms_norm with normjit's kernels, optionally with the residual stream added first. In compiled code the
forward pass is left to Inductor, which fuses it with its neighbours."""
from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

from normjit._library import InvalidArgument, check_finite, counted
from normjit.torch import _kernels, operators, sharding
from normjit.torch.tracing import as_they_are, columns, is_for_onnx, is_looked_into, named_once, unseen

TYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDE_TYPES = (torch.float64,)
ALL_TYPES = TYPES + WIDE_TYPES
PLAIN = (torch.Tensor, torch.nn.Parameter)


def default_eps(*dtypes: torch.dtype) -> float:
    """Returns the default eps of torch.nn.RMSNorm: the machine epsilon of the type in which the norm computes."""
    return torch.finfo(torch.float64 if torch.float64 in dtypes else torch.float32).eps


@overload
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5,
               weight_offset: float = 0.0, residual: None = None, main_grad: bool = False) -> Tensor: ...
@overload
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5,
               weight_offset: float = 0.0, residual: Tensor, main_grad: bool = False) -> tuple[Tensor, Tensor]: ...
@overload
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5,
               weight_offset: float = 0.0, residual: Tensor | None = None,
               main_grad: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5,
               weight_offset: float = 0.0, residual: Tensor | None = None,
               main_grad: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Returns layer_norm over the last dimension. With a residual, returns (y, x + residual), where y is the norm of
    the sum; one backward pass serves both. normjit's kernels compute the norm in eager mode, and its gradients in eager
    mode and under torch.compile, on CPUs and NVIDIA GPUs. Second derivatives are torch's.

    weight, bias: [N], or with a row for each element of x's first dimensions: [B,N] for an x of [B,T,N], one for each
    sample. For scale and shift of a diffusion transformer use weight_offset=1: xhat * (scale + 1) + shift.

    main_grad: the backward pass adds the gradients of weight and bias to their attributes main_grad, as Megatron's
    layers with fused gradient accumulation do, and leaves `grad` alone. main_grad is usually f32, or bf16 or f16, but
    f64 if x or residual is. Eager mode only, and without create_graph=True."""
    return _apply("layernorm", x, weight, bias, eps, weight_offset, residual, main_grad)


@overload
def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-5, weight_offset: float = 0.0,
             residual: None = None, main_grad: bool = False) -> Tensor: ...
@overload
def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-5, weight_offset: float = 0.0,
             residual: Tensor, main_grad: bool = False) -> tuple[Tensor, Tensor]: ...
@overload
def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-5, weight_offset: float = 0.0,
             residual: Tensor | None = None, main_grad: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-5, weight_offset: float = 0.0,
             residual: Tensor | None = None, main_grad: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Returns x * rsqrt(mean(x^2) + eps) * (weight + weight_offset) over the last dimension, computed in f32 and
    rounded once; weight_offset=1 is a zero-centred weight, as in Gemma. All else is as in layer_norm()."""
    return _apply("rmsnorm", x, weight, None, eps, weight_offset, residual, main_grad)


def formula(norm, x, weight, bias, eps, weight_offset):
    """Computes the forward pass with torch's operators."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    h = _as(x, wide)
    weight, bias = (t if t is None else _per_row(_as(t, wide), h) for t in (weight, bias))
    # A traced norm with a weight has as many columns as that; the older exporter for ONNX takes only numbers.
    row = (columns(h),) if weight is not None or is_for_onnx() else h.shape[-1:]
    if norm == "layernorm" and weight_offset == 0.0 and all(t is None or t.dim() == 1 for t in (weight, bias)):
        return _as(torch.nn.functional.layer_norm(h, row, weight, bias, eps), x.dtype)
    if norm == "layernorm":
        y = torch.nn.functional.layer_norm(h, row, eps=eps)
    else:
        y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        # In a checkpoint, the partitioner of torch 2.15 fails after Inductor has dropped the addition of a 0.
        y = y * (weight + weight_offset if weight_offset else weight)
    return _as(y if bias is None else y + bias, x.dtype)


def _per_row(weight, h):
    """Returns a weight of [B,N] as [B,1,N], for rows of [B,T,N]."""
    if weight.dim() == 1:
        return weight
    return weight.reshape(*weight.shape[:-1], *(1 for _ in range(h.dim() - weight.dim())), weight.shape[-1])


def _with_rows_alike(weight, bias, x):
    """Expands weight and bias so that both have rows for the same dimensions of x, because a kernel has only one kind
    of slices."""
    if weight is None or bias is None or weight.dim() == bias.dim() or 1 in (weight.dim(), bias.dim()):
        return weight, bias
    dimensions = max(weight.dim(), bias.dim())
    return (t.reshape(*t.shape[:-1], *(1 for _ in range(dimensions - t.dim())), x.shape[-1])
            .expand(*x.shape[: dimensions - 1], x.shape[-1]) for t in (weight, bias))


def _as(tensor, dtype):
    """Converts like to(), but returns the tensor itself if it already has the type. to() would make a second name for
    it: Dynamo of torch 2.11 makes both names outputs of an autograd.Function, and gives the gradient of y to the
    wrong one."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _apply(norm, x, weight, bias, eps, weight_offset, residual, main_grad):
    _check_operands(x, weight, bias, residual)
    if not operators.serves(x.device.type) and not x.is_meta:
        raise _kernels.Unavailable(f"x: is on {x.device}; {_kernels.why_not(x.device.type)}")
    check_finite("eps", eps, least=0)
    check_finite("weight_offset", weight_offset)
    weight, bias = _with_rows_alike(weight, bias, x)
    if not main_grad:
        return norm_of(x, residual, weight, bias, norm, eps, weight_offset)
    if torch.compiler.is_compiling():
        raise InvalidArgument("main_grad: torch.compile cannot follow it; compile without, or call it eagerly")
    types = TYPES if torch.float64 not in (x.dtype, None if residual is None else residual.dtype) else WIDE_TYPES
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            _check_main_grad(name, parameter, types)
    return norm_of(x, residual, weight, bias, norm, eps, weight_offset, accumulating=(weight, bias))


def check_tensor(name, t, first_name, first, types=ALL_TYPES):
    """Raises InvalidArgument unless kernels can read the tensor together with the first one."""
    if not isinstance(t, torch.Tensor):
        raise InvalidArgument(f"{name}: is {type(t).__name__}; must be a tensor")
    if t.dtype not in types:
        raise InvalidArgument(f"{name}: its type is {t.dtype}; allowed: {', '.join(map(str, types))}")
    if t.is_nested:
        raise InvalidArgument(f"{name}: is a nested tensor; give its values(), of which each row is a row")
    if t.layout is not torch.strided:
        raise InvalidArgument(f"{name}: its layout is {t.layout}; must be torch.strided: give to_dense()")
    if t.device != first.device:
        raise InvalidArgument(f"{name}: is on {t.device}; {first_name} is on {first.device}")


def is_shape(tensor, shape):
    """True if a tensor has this shape. Unlike !=, this does not compare the first sizes of shapes of different lengths,
    because an exported program would depend on the result."""
    return tensor.dim() == len(shape) and tensor.shape == shape


@unseen
def _check_operands(x, weight, bias, residual):
    for name, t in (("x", x), ("weight", weight), ("bias", bias), ("residual", residual)):
        if t is not None or name == "x":
            check_tensor(name, t, "x", x)
    if x.dim() == 0:
        raise InvalidArgument("x: has no dimensions; the last must be the normalised one")
    if residual is not None and residual.shape != x.shape:
        raise InvalidArgument(f"residual: its shape is {tuple(residual.shape)}; must be that of x, {tuple(x.shape)}")
    row = x.shape[-1:]
    if weight is not None and not is_shape(weight, row):
        _check_samples("weight", weight, x)
    if bias is not None and not is_shape(bias, row):
        _check_samples("bias", bias, x)


def _check_samples(name, weight, x):
    if not 1 <= weight.dim() <= x.dim() or weight.shape != (*x.shape[: weight.dim() - 1], x.shape[-1]):
        raise InvalidArgument(f"{name}: its shape is {tuple(weight.shape)}; must be {tuple(x.shape[-1:])}, or that with the "
                              f"first dimensions of x, {tuple(x.shape)}, before it")


def _check_main_grad(name, parameter, types):
    if parameter.dim() != 1:
        raise InvalidArgument(f"main_grad: {name} has {parameter.dim()} dimensions; must have one")
    if not parameter.requires_grad:
        return
    main_grad = _main_grad_of(name, parameter)
    if not isinstance(main_grad, torch.Tensor):
        raise InvalidArgument(f"main_grad: that of {name} is {type(main_grad).__name__}; must be a tensor")
    if main_grad.numel() != parameter.numel() or not main_grad.is_contiguous() or main_grad.device != parameter.device:
        raise InvalidArgument(f"main_grad: that of {name} must be contiguous, with {counted(parameter.numel(), 'element')} on "
                              f"{parameter.device}")
    if main_grad.dtype not in types:
        raise InvalidArgument(f"main_grad: that of {name} is {main_grad.dtype}; allowed for the gradients of this x: "
                              f"{', '.join(map(str, types))}")


def _main_grad_of(name, parameter):
    main_grad = getattr(parameter, "main_grad", None)
    if main_grad is None:
        raise InvalidArgument(f"main_grad: {name} has no attribute main_grad, or it is None")
    return main_grad


def norm_of(x, residual, weight, bias, norm, eps, weight_offset, forward_of=None, accumulating=None):
    """Applies Norm to its arguments. Returns y, or (y, h) with a residual."""
    if not torch.compiler.is_compiling():
        sharding.prepare_for(x)
    if is_looked_into():
        return Norm.forward(x, residual, weight, bias, norm, eps, weight_offset, forward_of, accumulating, False)
    if torch.compiler.is_compiling():
        x, residual, weight, bias = named_once(x, residual, weight, bias)
    if forward_of is not None or not _has_kernel(x, residual, weight, bias):
        return _function().apply(x, residual, weight, bias, norm, eps, weight_offset, forward_of, accumulating, False)
    if torch.is_grad_enabled() and any([t is not None and t.requires_grad for t in (x, residual, weight, bias)]):
        y, h, *_ = EagerNorm.apply(x, residual, weight, bias, norm, eps, weight_offset, None, accumulating, True)
    else:
        y, h, *_ = _by_kernel(x, residual, weight, bias, norm, eps, weight_offset, statistics=False)
    return y if residual is None else (y, h)


def _has_kernel(x, residual, weight, bias):
    """True if normjit's kernel computes the norm: in eager mode, for tensors of its types, including sharded ones. It
    rounds once, as formula() does."""
    dtype, device = x.dtype, x.device
    if torch.compiler.is_compiling() or device.type not in operators.served:
        return False
    types = WIDE_TYPES if dtype == torch.float64 else TYPES
    for t in (x, residual, weight, bias):  # not a generator, because calling one takes a microsecond
        if t is None:
            continue
        if t.dtype not in types or (t is not x and t.device != device):
            return False
        if type(t) not in PLAIN and not sharding.is_dtensor(t):
            return False
    return True


def _by_kernel(x, residual, weight, bias, norm, eps, weight_offset, statistics):
    """Returns y, h, mean and rstd. h is None without a residual, mean is None for rmsnorm, and both statistics are None
    if they are not requested."""
    shape = x.shape[-1:]
    if residual is not None and (residual.dtype != x.dtype or residual.shape != x.shape):
        h = x + residual
        y, _, mean, rstd = _by_kernel(h, None, weight, bias, norm, eps, weight_offset, statistics)
        return y, h, mean, rstd
    if norm == "layernorm":
        return torch.ops.normjit.layer_norm(x, residual, shape, weight, bias, eps, weight_offset, statistics)
    y, h, rstd = torch.ops.normjit.rms_norm(x, residual, shape, weight, eps, weight_offset, statistics)
    return y, h, None, rstd


class Norm(torch.autograd.Function):
    """The norm of x or, with a residual, (y, h), where y is the norm of h = x + residual. `forward_of` computes y
    instead of formula(). `accumulating` is None, or (weight, bias), to whose main_grad their gradients are added.
    With `by_kernel`, normjit's kernel computes y, and the result is what _by_kernel() returns."""

    @staticmethod
    def forward(x, residual, weight, bias, norm, eps, weight_offset, forward_of, accumulating, by_kernel):
        if by_kernel:
            return _by_kernel(x, residual, weight, bias, norm, eps, weight_offset, statistics=True)
        h = x if residual is None else x + residual
        y = formula(norm, h, weight, bias, eps, weight_offset) if forward_of is None else forward_of(h)
        return y if residual is None else (y, h)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _keep(ctx, inputs, output)

    @staticmethod
    def backward(ctx, dy, dh=None, *_):
        h, weight, bias, mean, rstd = ctx.saved_tensors
        wants_h = ctx.needs_input_grad[0] or (ctx.has_residual and ctx.needs_input_grad[1])
        if dy is None:
            gradients = (dh, None, None)
        elif torch.is_grad_enabled():  # our outputs have no derivatives
            if ctx.accumulating is not None and any(t is not None and t.requires_grad for t in ctx.accumulating):
                raise InvalidArgument("main_grad: a gradient that is added to it has no derivatives; create_graph=True "
                                      "needs main_grad=False")
            gradients = _differentiable(ctx, h, weight, bias, dy, dh)
        else:
            mask = [wants_h, ctx.needs_input_grad[2], ctx.needs_input_grad[3]]
            by = _by_normjit if ctx.accumulating is None else _into_main_grads
            weight, bias, dy, dh = [beside(h, t) for t in (weight, bias, dy, dh)]
            gradients = by(ctx, h, weight, bias, mean, rstd, dy, dh, mask)
        dx, dweight, dbias = gradients
        return dx, dx if ctx.has_residual else None, dweight, dbias, None, None, None, None, None, None


def _keep(ctx, inputs, output):
    """Saves what the backward pass needs."""
    x, residual, weight, bias, ctx.norm, ctx.eps, ctx.weight_offset, _, ctx.accumulating, by_kernel = inputs
    ctx.has_residual = residual is not None
    mean, rstd = output[2:] if by_kernel else (None, None)
    ctx.save_for_backward(*as_they_are(output[1] if ctx.has_residual else x, weight, bias, mean, rstd))
    ctx.set_materialize_grads(False)


class EagerNorm(torch.autograd.Function):
    """Does the same as Norm without a setup_context. With one, torch binds the arguments of every call, which triples
    the time for small inputs. Statistics are not among the outputs either (NOTES N-801)."""

    @staticmethod
    def forward(ctx, *inputs):
        output, by_kernel = Norm.forward(*inputs), inputs[-1]
        if not by_kernel:
            output = tuple(map(no_view, output)) if isinstance(output, tuple) else no_view(output)
        _keep(ctx, inputs, output)
        if ctx.has_residual and not any(ctx.needs_input_grad[:2]):
            ctx.mark_non_differentiable(output[1])
        return output[:2] if by_kernel else output

    backward = Norm.backward


def no_view(tensor):
    """Returns a tensor on the same memory that is not a view, because autograd forbids writing to a view that an
    autograd.Function returns."""
    if torch.compiler.is_compiling() or type(tensor) not in PLAIN or not tensor._is_view():
        return tensor
    return torch.ops.aten._unsafe_view(tensor, tensor.shape)


def _function():
    """Returns the apply() of the right class, since torch.compile needs a setup_context."""
    return Norm if torch.compiler.is_compiling() else EagerNorm


def _by_normjit(ctx, h, weight, bias, mean, rstd, dy, dh, mask):
    shape = h.shape[-1:]
    if ctx.norm == "rmsnorm":
        dx, dweight = torch.ops.normjit.rms_norm_backward(
            dy, h, shape, rstd, weight, dh, ctx.eps, ctx.weight_offset, mask[:2]
        )
        return dx, dweight, None
    return torch.ops.normjit.layer_norm_backward(
        dy, h, shape, mean, rstd, weight, bias, dh, ctx.eps, ctx.weight_offset, mask
    )


def beside(h, tensor):
    """Converts a tensor to a type that a kernel for h takes, since f64 does not mix with other types. Autograd converts
    the gradient back."""
    wide = h.dtype == torch.float64
    if tensor is None or (tensor.dtype == torch.float64) == wide:
        return tensor
    return tensor.to(torch.float64 if wide else torch.float32)


def _into_main_grads(ctx, h, weight, bias, mean, rstd, dy, dh, mask):
    shape = h.shape[-1:]
    into = [_main_grad_of(name, parameter) if wanted else None
            for name, parameter, wanted in zip(("weight", "bias"), ctx.accumulating, mask[1:])]
    if ctx.norm == "rmsnorm":
        dx, _ = torch.ops.normjit.rms_norm_backward_into(
            dy, h, shape, rstd, weight, dh, into[0], ctx.eps, ctx.weight_offset, mask[:2]
        )
    else:
        dx, _, _ = torch.ops.normjit.layer_norm_backward_into(
            dy, h, shape, mean, rstd, weight, bias, dh, *into, ctx.eps, ctx.weight_offset, mask
        )
    return dx, *(_added(parameter) if wanted else None for parameter, wanted in zip(ctx.accumulating, mask[1:]))


def _added(parameter):
    """Marks a parameter whose gradient is in its main_grad, and returns a dummy gradient, as Megatron's hooks
    expect."""
    if not hasattr(parameter, "grad_added_to_main_grad"):
        return None
    parameter.grad_added_to_main_grad = True
    make = torch.zeros_like if getattr(parameter, "zero_out_wgrad", False) else torch.empty_like
    return make(parameter)


def _differentiable(ctx, h, weight, bias, dy, dh):
    """Computes the same gradients with operators that have derivatives, for double backward and torch.func."""
    wide = torch.float64 if h.dtype == torch.float64 else torch.float32
    x, dy = h.to(wide), dy.to(wide)
    centred = x - x.mean(-1, keepdim=True) if ctx.norm == "layernorm" else x
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + ctx.eps)
    xhat = centred * rstd
    g = dy if weight is None else dy * (_per_row(weight.to(wide), x) + ctx.weight_offset)
    sums = xhat * (g * xhat).mean(-1, keepdim=True)
    dx = (rstd * (g - (sums + g.mean(-1, keepdim=True) if ctx.norm == "layernorm" else sums))).to(h.dtype)
    dweight, dbias = (None if t is None else _summed_for(t, terms) for t, terms in ((weight, dy * xhat), (bias, dy)))
    return (dx if dh is None else dx + dh), dweight, dbias


def _summed_for(weight, terms):
    """Sums over all rows that use the same row of the weight."""
    rows = range(weight.dim() - 1, terms.dim() - 1)
    return (terms.sum(tuple(rows)) if rows else terms).to(weight.dtype)
