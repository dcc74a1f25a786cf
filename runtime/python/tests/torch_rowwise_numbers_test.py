# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Tests row-wise functions with parameters of one number, as ScaleNorm and dynamic tanh have."""
import normjit
import pytest
import torch
from normjit.torch import rowwise
from torch.nn import functional


def scale_norm(x, a, w):
    return a * functional.normalize(x, dim=-1) + w


def dynamic_tanh(x, a, w):
    return torch.tanh(torch.exp(a) * x) * w + a.expand_as(x)


def capped(x, a, w):
    return (functional.softplus(a) * x + w).sum(-1) * a


FUNCTIONS = [scale_norm, dynamic_tanh, capped]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(5, 3, 33), (4, 1), (1, 8), (0, 8)])
@pytest.mark.parametrize("of_one", [(), (1,)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_parameters_of_one_number(function, of_one, shape, dtype):
    generator = torch.Generator().manual_seed(sum(shape))
    leaves = [torch.randn(each, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for each in (shape, of_one, shape[-1:])]
    wide = [each.detach().double().requires_grad_() for each in leaves]
    y, right = rowwise(function)(*leaves), function(*wide)
    assert y.shape == right.shape and y.dtype == dtype
    dy = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(dtype)
    got, wanted = torch.autograd.grad(y, leaves, dy), torch.autograd.grad(right, wide, dy.double())
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-10}[dtype]
    for leaf, one, other in zip((None, *leaves), (y, *got), (right, *wanted)):
        assert leaf is None or (one.shape, one.dtype) == (leaf.shape, leaf.dtype)
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance * float(1 + other.detach().abs().sum() ** 0.5))


@pytest.mark.parametrize("of_one", [(), (1,)])
def test_transforms(of_one):
    generator = torch.Generator().manual_seed(1)
    leaves = [torch.randn(each, generator=generator, dtype=torch.float64).requires_grad_() for each in ((3, 5), of_one, (5,))]
    made = rowwise(dynamic_tanh)
    assert torch.autograd.gradgradcheck(made, leaves)
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    for one, other in zip(torch.autograd.grad(compiled(*leaves).sum(), leaves), torch.autograd.grad(made(*leaves).sum(), leaves)):
        torch.testing.assert_close(one, other)


def test_a_shape_that_is_none_of_them():
    with pytest.raises(normjit.InvalidArgument, match=r"w: its shape is \(2,\); must be \(4, 8\), \(8,\), \(4, 1\), \(1,\) or \(\)"):
        rowwise(lambda x, w: x * w)(torch.ones(4, 8), torch.ones(2))


def test_truths_get_their_replacement():
    with pytest.raises(normjit.InvalidArgument, match=r"m: its type is torch.bool; .*; give m.to\(x.dtype\) for an x, and use m != 0 as"):
        rowwise(lambda x, m: x.masked_fill(m, 0))(torch.ones(4, 8), torch.ones(4, 8) > 0)
