# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Tests row-wise functions whose result has one number for each row, such as losses, and results in dicts and named tuples."""
import collections

import pytest
import torch
from normjit.torch import rowwise
from torch.nn import functional


def cross_entropy(x, z, w):
    return -(z * functional.log_softmax(x * w, -1)).sum(-1)


def standard(x, z, w):
    return x.std(-1, keepdim=True)


FUNCTIONS = [cross_entropy, lambda x, z, w: torch.logsumexp(x, -1, keepdim=True).square() + z.mean(-1, keepdim=True),
             lambda x, z, w: functional.cosine_similarity(x, z * w, dim=-1), lambda x, z, w: ((x - z).square() * w).mean(-1),
             lambda x, z, w: (x * w).norm(dim=-1), standard,
             lambda x, z, w: functional.triplet_margin_loss(x, z, x * w + 1, reduction="none"),
             lambda x, z, w: torch.where((x - z).abs() < 1, (x - z).square() / 2, (x - z).abs() - 0.5).mean(-1)]


def drawn(dtype, *shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(*each, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for each in (shape, shape, shape[-1:])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(5, 3, 33), (8,), (0, 4), (5, 1), (1, 1), (1,)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_of_rows(function, shape, dtype):
    if shape[-1] == 1 and function is standard:
        pytest.skip("a row of one column has no standard deviation")
    leaves = drawn(dtype, *shape)
    wide = [each.detach().double().requires_grad_() for each in leaves]
    y, like, right = rowwise(function)(*leaves), function(*leaves), function(*wide)
    assert (y.shape, y.dtype) == (like.shape, like.dtype)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(y.dtype)
    got = torch.autograd.grad(y, leaves, dy, allow_unused=True)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-6}[dtype]
    for one, other in zip((y, *got), (right, *torch.autograd.grad(right, wide, dy.double(), allow_unused=True))):
        if other is not None:
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend):
    row_by_row = rowwise(cross_entropy)
    compiled = torch.compile(lambda *leaves: row_by_row(*leaves).mean(), fullgraph=True, backend=backend)
    leaves = drawn(torch.float32, 6, 32)
    for one, other in zip(torch.autograd.grad(compiled(*leaves), leaves), torch.autograd.grad(cross_entropy(*leaves).mean(), leaves)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_second_derivatives():
    leaves = drawn(torch.float64, 3, 5)
    assert torch.autograd.gradgradcheck(rowwise(cross_entropy), leaves)


Normed = collections.namedtuple("Normed", "y mean")


@pytest.mark.parametrize("compile", [lambda f: f, lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)])
def test_dicts_and_named_tuples(compile):
    def function(x, z, w):
        mean = x.mean(-1, keepdim=True)
        return {"normed": Normed((x - mean) * w, mean), "others": [z, {"none": None}]}

    leaves, row_by_row = drawn(torch.float32, 4, 8), rowwise(function)
    got, wanted = compile(lambda *leaves: row_by_row(*leaves))(*leaves), function(*leaves)
    assert type(got) is dict and type(got["normed"]) is Normed and got["others"][1] == {"none": None}
    torch.testing.assert_close(got["normed"]._asdict(), wanted["normed"]._asdict())
    torch.testing.assert_close(torch.autograd.grad(got["normed"].y.sum(), leaves[0]), torch.autograd.grad(wanted["normed"].y.sum(), leaves[0]))
