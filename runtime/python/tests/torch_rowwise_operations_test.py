# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Tests the torch operations that rowwise() accepts: values and gradients equal torch's in double, also for rows of
zeros."""
import normjit
import pytest
import torch
from normjit.torch import rowwise
from torch.nn import functional


def drawn(seed, *shape):
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made if len(shape) == 1 else made.index_fill(0, torch.tensor([1]), 0)  # a row of zeros, or several


def in_place(x, w):
    y = x * w
    y += 1
    z = y * 2
    y.mul_(w).sub_(x)
    return y + z


def mean_in_place(x, w):
    mean = x.mean(-1)
    mean += 1
    return (x * w).relu_() * mean.unsqueeze(-1)


def standard(x, w):
    return (x - x.mean(-1)[..., None]) / torch.std(x, -1, keepdim=True).clamp_min(1e-3) * w


def of_variance(x, w):
    variance, mean = torch.var_mean(x, -1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-3) * w + x * x.var(-1, correction=0)[..., None]


def has_derivative(function):
    try:
        function(torch.ones(2, requires_grad=True))[0].backward()
    except RuntimeError:
        return False
    return True


SERVED = [
    in_place, mean_in_place, standard, of_variance,
    lambda x, w: functional.layer_norm(functional.silu(x), x.shape[-1:], w, w, 1e-3) + functional.layer_norm(x, x.shape[-1:]),
    lambda x, w: functional.rms_norm(x, x.shape[-1:], w, 1e-5), lambda x, w: functional.normalize(x, dim=-1) * w,
    lambda x, w: functional.normalize(x, dim=-1, p=1) * w, lambda x, w: functional.normalize(x, dim=-1, p=float("inf")) * w,
    lambda x, w: functional.cosine_similarity(x, x * w, dim=-1)[..., None] * x, lambda x, w: functional.relu(x).square() * w,
    lambda x, w: functional.leaky_relu(x, 0.2) * w, lambda x, w: functional.mish(x) + functional.logsigmoid(x) * w,
    lambda x, w: functional.softplus(x, beta=3) * w, lambda x, w: functional.softplus(x, 2, threshold=0.5) * w, lambda x, w: torch.log1p(x * x) * w,
    lambda x, w: torch.logsumexp(x, -1, keepdim=True) * w - x,
    lambda x, w: torch.addcmul(x, x, w, value=0.3) + torch.addcdiv(x, x, 2 + w * w, value=3), lambda x, w: torch.lerp(x, w * x, x),
    lambda x, w: x.mean(-1, keepdim=True).expand_as(x).sum(-1, keepdim=True) * w.expand_as(x) - x.amin(-1, keepdim=True),
    lambda x, w: x.pow(4) * w / x.abs().sum(-1, keepdim=True).clamp(0.5, 3), lambda x, w: torch.rsub(w, x, alpha=3),
    # torch's gradients of 0, and of elements that are a bound
    lambda x, w: x / (x.norm(dim=-1, keepdim=True) + 1e-3) * w + x.norm(dim=-1, keepdim=True).clamp_min(1e-3),
    lambda x, w: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3) * w, lambda x, w: x.clamp(-0.5, 1) * w + x.clamp_max(0.5),
    lambda x, w: x.abs().pow(1.7) * w + (x.abs() + w.square()).pow(-0.3) + (1 + w.square()).pow(1 / 3),
    lambda x, w: torch.where(x > 0, x, w) + torch.where(x <= w, 2.0, x * w) + x.masked_fill(w >= 0.5, 3) + x * (x < w),
    lambda x, w: torch.softmax(x.masked_fill(x < x.mean(-1, keepdim=True), float("-inf")), -1) * w,
    lambda x, w: x.sign() * w + functional.threshold(x, 0, 2), lambda x, w: torch.expm1(x) + functional.elu(x * w, 1.5),
    lambda x, w: functional.hardtanh(x, 0, 2) * functional.relu6(w), lambda x, w: functional.hardshrink(x, 0.2) * w,
    pytest.param(lambda x, w: (x - torch.aminmax(x, dim=-1, keepdim=True)[0]) / (torch.aminmax(x, dim=-1, keepdim=True)[1] + 9) * w,
                 marks=pytest.mark.skipif(not has_derivative(torch.aminmax), reason="this torch has no derivative of aminmax")),
    lambda x, w: torch.where((x > 0) & (w < 0.5), x, w) + torch.where(~((x > 0) | (w < 0)), 2.0, x * w) + x * (w != 0),
    lambda x, w: torch.where(x == 0, w, x) * w + torch.where(x > 0, torch.zeros_like(x), x) + torch.full_like(x, 2) * torch.ones_like(w),
    lambda x, w: torch.exp2(x) * w + torch.log2(x.abs() + 1) + torch.log10(x * x + 1) + 2.0 ** x,
    lambda x, w: functional.huber_loss(x, x * w, reduction="none", delta=0.5) + functional.mse_loss(x, x * w, reduction="none"),
    lambda x, w: functional.smooth_l1_loss(x * w, x, reduction="none", beta=0.3) + functional.softshrink(x * w, 0.3),
    lambda x, w: torch.round(x * 3) * w + torch.floor(x * 4) - torch.ceil(x * 5) * x + torch.trunc(x * 6),
    lambda x, w: functional.huber_loss(2 * x, w * x, reduction="none") + functional.smooth_l1_loss(2 * x, x, reduction="none"),
    lambda x, w: functional.binary_cross_entropy_with_logits(x * w, torch.sigmoid(x), reduction="none"),
    lambda x, w: functional.normalize(x, p=3, dim=-1) * w + (x * w).norm(1.5, dim=-1, keepdim=True),
    lambda x, w: functional.kl_div(functional.log_softmax(x * w, -1), torch.softmax(x, -1), reduction="none"),
    lambda x, w: torch.xlogy(functional.relu(x), torch.softmax(w * x, -1)) + torch.xlogy(w.relu(), x.square() + 0.1),
    lambda x, w: torch.clamp(x, min=w) + x.clamp(max=w * w) * w + torch.clamp(x * w, w - 1, w.square() + 0.5),
    lambda x, w: (x * 2).clamp_(x.mean(-1, keepdim=True), 2 + w.abs()) * w + torch.clip(x, None, w),
    lambda x, w: functional.dropout(x * w, 0.5, training=False) * x.sum(-1, keepdim=True).squeeze(-1).unsqueeze(-1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 2, 8), (4, 33)])
@pytest.mark.parametrize("function", SERVED)
def test_served(function, shape, dtype):
    wide = [drawn(1, *shape).requires_grad_(), drawn(2, shape[-1]).requires_grad_()]
    leaves = [each.detach().to(dtype).requires_grad_() for each in wide]
    y, right = rowwise(function)(*leaves), function(*wide)
    dy = drawn(3, *shape) + 1
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    for got, wanted in zip((y, *torch.autograd.grad(y, leaves, dy.to(dtype))), (right, *torch.autograd.grad(right, wide, dy))):
        torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance * float(1 + wanted.detach().abs().max()))


@pytest.mark.parametrize("function", [
    lambda x, w: functional.selu(x) * w + functional.celu(x, 0.7),
    lambda x, w: functional.hardswish(4 * x) + functional.hardsigmoid(5 * x) * w])
def test_served_where_torch_has_numbers_in_single(function):
    test_served(function, (4, 33), torch.float32)


def writes_to_a_view(x):
    mean = x.mean(-1)
    row = mean.unsqueeze(-1)
    mean += 1
    return x * row


@pytest.mark.parametrize("function, message", [
    (lambda x: torch.where(x.isnan(), x, 0), "aten.isnan.default, .*: makes a tensor of torch.bool; formulas compute with "
     "floating-point numbers only and compare them with < <= > >= == != only"),
    (lambda x: x * torch.logical_and(x, x), "aten.logical_and.default, .*: makes a tensor of torch.bool"),
    (lambda x: x.to(torch.float8_e4m3fn).to(x.dtype), "rounds to torch.float8_e4m3fn, which formulas do for the result only"),
    (lambda x: x.round().to(torch.int8) * 2, "rounds to torch.int8, which formulas do for the result only"),
    (lambda x: x * float("nan"), "nan is not a number"),
    (lambda x: x.sin(), "aten.sin.default, .*: is no operation of formulas; its result may be an argument. Allowed: abs add .* zeros_like"),
    (lambda x: functional.huber_loss(x, x), "aten.huber_loss.default, .*: is of all rows"), (lambda x: x * (-2) ** x, "a power of -2"),
    (lambda x: x - x.max(-1, keepdim=True)[0], r"use amax\(\) or amin\(\)"), (lambda x: x - x.mean(), "must be over the last dimension"),
    (lambda x: x.mul_(2) * 3, "writes to an argument"), (writes_to_a_view, "writes to an argument, a view, or a tensor that has one"),
    (lambda x: x.norm(0.5, dim=-1, keepdim=True) * x, "a norm of order 0.5; allowed: numbers from 1 on, inf"),
    (lambda x: x * x.mean(-1, keepdim=True).mean(-1, keepdim=True), "must be of values with x.s shape"),
    (lambda x: functional.layer_norm(x, x.shape), "a norm must be over the last dimension"),
    (lambda x: x * x.mean(-1).softmax(-1)[:, None], "a softmax must be of values with x's shape"),
    (lambda x: x * x.var(-1, correction=8)[..., None], "a variance of 8 columns with the correction 8")])
def test_refused(function, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        rowwise(function)(torch.ones(6, 8))


def test_a_variance_of_one_column_is_refused():
    with pytest.raises(normjit.InvalidArgument, match="a variance of 1 column with the correction 1"):
        rowwise(lambda x: x - x.var(-1, keepdim=True))(torch.ones(6, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_that_the_type_does_not_have(dtype):
    """A number that replaces elements is not rounded before the results are."""
    x = drawn(1, 4, 33).to(dtype)
    for function in (lambda x: torch.where(x > 9e3, x, 0.1) * 0.7, lambda x: torch.where(x > 9e3, x, 0.1).sum(-1)):
        torch.testing.assert_close(rowwise(function)(x), function(x.double()).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("function", [lambda x: torch.expm1(x), functional.elu, functional.selu, lambda x: functional.celu(x, 0.7)])
def test_gradients_where_exp_is_small_or_infinite(function):
    x = torch.tensor([[-torch.inf, -20, -15.8, -5, -1e-3, 0, 1e-3, 30, 87, 89, 200, torch.inf]], requires_grad=True)
    wide = x.detach().double().requires_grad_()
    y, right = rowwise(function)(x), function(wide)
    gradients = torch.autograd.grad(y, x, torch.ones_like(x)), torch.autograd.grad(right, wide, torch.ones_like(wide))
    for got, wanted in zip((y, *gradients[0]), (right, *gradients[1])):
        torch.testing.assert_close(got, wanted.float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("function", [functional.hardsigmoid, functional.hardswish])
def test_values_near_a_zero(function):
    x = torch.tensor([[-3.1, -3.0, -2.9999, -2.99, 0.0, 1e-6, 3.0, 4.0]])
    torch.testing.assert_close(rowwise(lambda x: function(x))(x), function(x.double()).float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("function", [
    functional.relu, functional.leaky_relu, lambda x: functional.leaky_relu(x, 2), lambda x: functional.leaky_relu(x, -1),
    functional.hardswish, lambda x: functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=0.5),
    lambda x: functional.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=0.5)])
def test_infinite_numbers(function):
    x = torch.tensor([[-1e30, 1.0, -2.0, 0.5, -0.5, 0.0, 4.0, torch.inf, -torch.inf]])[:, :8 if function is functional.hardswish else 9]
    leaf, own = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, wanted = rowwise(lambda x: function(x))(leaf), function(own)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), leaf), torch.autograd.grad(wanted.sum(), own))


@pytest.mark.parametrize("size", [1e-30, 1e15, 1e30])
@pytest.mark.parametrize("order", [1.5, 3, 4])
def test_norms_whose_powers_overflow(order, size):
    x = (drawn(1, 4, 33) * size).float().requires_grad_()
    wide = x.detach().double().requires_grad_()
    y, right = rowwise(lambda x: functional.normalize(x, p=order, dim=-1, eps=1e-38))(x), functional.normalize(wide, p=order, dim=-1, eps=1e-38)
    dy = drawn(2, 4, 33)
    for got, wanted in zip((y, *torch.autograd.grad(y, x, dy.float())), (right, *torch.autograd.grad(right, wide, dy))):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-6 * float(wanted.detach().abs().max()))


@pytest.mark.parametrize("function", [lambda x: torch.exp2(x), lambda x: 2**x, lambda x: 4 ** (x / 2), lambda x: 0.5**-x])
def test_powers_of_two(function):
    x = torch.cat((torch.linspace(-126, 127.9, 999), torch.arange(-126, 128), torch.tensor([torch.inf, -torch.inf, 129, -151])))[None]
    wide = x.double().requires_grad_()
    y, right = rowwise(function)(x.requires_grad_()), function(wide)
    gradients = torch.autograd.grad(y, x, torch.ones_like(x)), torch.autograd.grad(right, wide, torch.ones_like(wide))
    for got, wanted in zip((y, *gradients[0]), (right, *gradients[1])):
        torch.testing.assert_close(got[:, :-4].double(), wanted[:, :-4], rtol=2.5e-7, atol=0)
        torch.testing.assert_close(got[:, -4:], wanted[:, -4:].float(), rtol=0, atol=0)


def log_of_sums(x):
    return torch.logsumexp(x, -1, keepdim=True).expand_as(x)


@pytest.mark.parametrize("call", [lambda f: f, torch.vmap])
def test_infinite_numbers_in_logsumexp(call):
    x = torch.tensor([[1.0, -torch.inf], [-torch.inf, -torch.inf], [torch.inf, 1.0], [torch.inf, -torch.inf], [torch.nan, 1.0]])
    torch.testing.assert_close(call(rowwise(log_of_sums))(x), log_of_sums(x), equal_nan=True)
