# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Tests row-wise functions that cut rows into halves or pairs and join them, as rotary embeddings do."""
import normjit
import pytest
import torch
from normjit.torch import rowwise
from torch_formula_cases import leaf


def normalized(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def by_slices(x, cos, sin, w):
    q = normalized(x, w)
    half = x.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), dim=-1) * sin


def by_chunks(x, cos, sin, w):
    q = normalized(x, w)
    first, second = q.chunk(2, -1)
    return q * cos - torch.cat([second, -first], q.dim() - 1) * sin


def by_splits(x, cos, sin, w):
    q = normalized(x, w)
    first, second = q.split(x.shape[-1] // 2, dim=-1)
    other, same = torch.split(q, [x.shape[-1] // 2] * 2, dim=-1)
    return q * cos - torch.cat((-second, -other), -1) * sin + torch.cat((same, first), -1)


def in_halves(x, cos, sin, w):
    """Rotates like GPT-NeoX and vLLM."""
    first, second = normalized(x, w).chunk(2, dim=-1)
    c, s = cos[..., : x.shape[-1] // 2], sin[..., -(x.shape[-1] // 2):]
    return torch.cat((first * c - second * s, second * c + first * s), dim=-1)


def of_weights(x, cos, sin, w):
    a, b = w.chunk(2, -1)
    first, second = x.chunk(2, -1)
    y = torch.cat((torch.where(first > second, first, b), (second * a).exp() + x.mean(-1, keepdim=True)), -1)
    return y * cos + x * torch.cat((b, a), -1) * sin[..., :]


def by_every_other(x, cos, sin, w):
    """Rotates like GPT-J."""
    q = normalized(x, w)
    return q * cos + torch.stack((-q[..., 1::2], q[..., ::2]), dim=-1).flatten(-2) * sin


def in_pairs(x, cos, sin, w):
    """Rotates as Llama originally did."""
    first, second = normalized(x, w).unflatten(-1, (-1, 2)).unbind(-1)
    c, s = cos[..., ::2], sin[..., 1::2]
    return torch.stack([first * c - second * s, first * s + second * c], -1).reshape(x.shape)


def by_places(x, cos, sin, w):
    pairs = normalized(x, w).view(*x.shape[:-1], x.shape[-1] // 2, 2)
    angles = cos.view(*x.shape[:-1], x.shape[-1] // 2, 2)[..., 0]
    turned = torch.stack((pairs[..., 0] * angles - pairs[..., -1], pairs[..., 1] * angles), dim=pairs.dim() - 1)
    a, b = w.view(-1, 2).unbind(-1)
    return turned.view_as(x) * torch.stack((b, -a), -1).flatten() * sin


FUNCTIONS = [by_slices, by_chunks, by_splits, in_halves, of_weights, by_every_other, in_pairs, by_places]


def drawn(*shape, dtype=torch.float32):
    x, *angles = (leaf(*shape, dtype=dtype, seed=i) for i in range(3))
    return [x, *(each.detach() for each in angles), leaf(shape[-1], dtype=dtype, seed=3)]


def gradients(function, tensors):
    y = function(*tensors)
    return y, *torch.autograd.grad(y.double().square().sum(), [tensors[0], tensors[-1]])


def assert_close(got, wanted, tolerance):
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance * float(1 + other.detach().norm()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(4, 3, 64), (5, 34), (2, 2), (6,), (0, 8)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_halves(function, shape, dtype):
    tensors = drawn(*shape, dtype=dtype)
    wide = [each.detach().double().requires_grad_(each.requires_grad) for each in tensors]
    assert_close(gradients(rowwise(function), tensors), gradients(function, wide),
                 {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled(function):
    of_rows = rowwise(function)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *tensors: of_rows(*tensors), fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 5):
        tensors = drawn(rows, 8)
        assert_close(gradients(compiled, tensors), gradients(function, tensors), 1e-5)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives(function):
    tensors = drawn(3, 6, dtype=torch.float64)
    assert torch.autograd.gradcheck(rowwise(function), tensors, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(rowwise(function), tensors)


@pytest.mark.parametrize("function", [lambda a: a.log(), lambda a: a.exp(), lambda a: 1 / a, lambda a: a.sqrt()])
def test_a_half_does_not_see_the_other(function):
    """The second half holds numbers whose functions, or their slopes, are infinite or NaN."""
    x = torch.tensor([[1.0, 2.0, 3.0, 0.0, -1.0, 1e4]], requires_grad=True)
    both = lambda x: torch.cat((function(x[..., :3]), x[..., 3:] * 2), -1)  # noqa: E731
    for made in (rowwise(both), lambda x: rowwise(lambda x: both(x.roll(3, -1)))(x.roll(3, -1))):
        y, right = made(x), both(x)
        torch.testing.assert_close((y, *torch.autograd.grad(y.sum(), x)), (right, *torch.autograd.grad(right.sum(), x)))


def test_queries_and_keys_in_one_function():
    def rotated(q, k, cos, sin):
        half = lambda x: torch.cat((-x[..., x.shape[-1] // 2:], x[..., : x.shape[-1] // 2]), -1)  # noqa: E731
        return q * cos + half(q) * sin, k * cos + half(k) * sin

    q, k, *angles = (leaf(4, 3, 8, dtype=torch.float32, seed=i).requires_grad_(i < 2) for i in range(4))
    got, wanted = (function(q, k, *angles) for function in (rowwise(rotated), rotated))
    for used in (slice(2), slice(1), slice(1, 2)):
        one, other = (torch.autograd.grad(sum(each.square().sum() for each in y[used]), (q, k), retain_graph=True, allow_unused=True)
                      for y in (got, wanted))
        torch.testing.assert_close(one, other)


def test_rotations_need_no_choices(monkeypatch):
    texts, call = [], rowwise.__globals__["call"]
    monkeypatch.setitem(rowwise.__globals__, "call", lambda text, *others: texts.append(text) or call(text, *others))
    for function in (by_slices, by_chunks, by_splits, by_every_other):
        rowwise(function)(*drawn(2, 8))
    assert len(texts) == 4 and not any("where" in text for text in texts)


CUT, JOINED = "a row can be cut into its two halves only, over the last dimension", "two halves of rows can be joined only, over the last"


@pytest.mark.parametrize("function, message", [
    (lambda x: x[..., :2].repeat(1, 4), CUT), (lambda x: x[..., ::4], CUT), (lambda x: x[..., ::2] + x[..., :4], "is not row-wise"), (lambda x: x[..., :4][..., :2], CUT), (lambda x: x[:4], CUT),
    (lambda x: torch.cat(x.chunk(4, -1), -1), CUT), (lambda x: torch.cat(x.chunk(2, 0), 0), CUT), (lambda x: x[..., 2:6], CUT),
    (lambda x: torch.stack((x[..., ::2], x[..., 1::2], x[..., ::2]), -1), JOINED), (lambda x: torch.stack((x, x), -1), JOINED),
    (lambda x: torch.cat((x[..., ::2], x[..., 1::2]), -1), JOINED), (lambda x: torch.stack((x[..., ::2], x[..., ::2]), -2), JOINED),
    (lambda x: x.unflatten(-1, (4, 2)), "each result must be a tensor of the shape of x"), (lambda x: x.unflatten(-1, (2, 4)), "is not row-wise"),
    (lambda x: torch.cat((x, x), -1), JOINED), (lambda x: torch.cat((x[..., :4], x[..., 4:]), 0), JOINED),
    (lambda x: torch.cat((x[..., :4], x.mean(-1, keepdim=True)), -1), JOINED),
    (lambda x: x[..., :4] * 2, "each result must be a tensor of the shape of x"),
    (lambda x: x * x[..., :4].mean(-1, keepdim=True), "must be of values with x's shape"),
    (lambda x: torch.cat((x[..., :4].roll(2, -1), x[..., 4:]), -1), "a row can be rolled by a half of it only"),
    (lambda x: torch.cat([each.mul_(2) for each in (x * 2).chunk(2, -1)], -1), "writes to an argument, a view"),
    (lambda x: torch.cat([(x * 2)[..., :4].mul_(2), x[..., 4:]], -1), "writes to an argument, a view")])
def test_refused(function, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        rowwise(function)(torch.ones(8, 8))


def test_halves_of_other_rows():
    with pytest.raises(normjit.InvalidArgument, match=CUT):
        rowwise(lambda x: torch.cat((x[..., 2:], x[..., :2]), -1))(torch.ones(3, 5))
    for function in (lambda x: x * x[..., :1], lambda x: x[..., :1].expand_as(x)):
        with pytest.raises(normjit.InvalidArgument, match="is not row-wise"):
            rowwise(function)(torch.ones(3, 2))
