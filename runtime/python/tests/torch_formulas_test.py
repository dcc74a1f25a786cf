# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Formulas and row-wise functions in PyTorch: values and gradients equal torch's in double precision."""
import re

import normjit
import normjit.torch
import pytest
import torch
from torch_formula_cases import drawn

GATED = """norm gated(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M]
    rstd = rsqrt(row_mean(x * x) + eps)
    y    = x * rstd * gamma * silu(z)
"""
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float64: 1e-12}


def assert_same(ours, torchs, tensors, dtype):
    """Compares values and gradients with those of torch's function in double."""
    mine = [t.clone().requires_grad_() for t in tensors]
    wide = [t.double().requires_grad_() for t in tensors]
    y, right = ours(*mine), torchs(*wide)
    dy = drawn(*right.shape, dtype=y.dtype, seed=9)
    y.backward(dy)
    right.backward(dy.double())
    for got, wanted in ((y, right), *((a.grad, b.grad) for a, b in zip(mine, wide))):
        off = (got.double() - wanted).norm() / wanted.norm()
        assert off <= TOLERANCE[dtype], off


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_formula(dtype):
    def torchs(x, z, gamma):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gamma * torch.nn.functional.silu(z)

    norm = normjit.torch.formula(GATED)
    tensors = [drawn(3, 5, 70, dtype=dtype, seed=i) for i in range(2)] + [drawn(70, dtype=dtype)]
    assert_same(lambda x, z, gamma: norm(x=x, z=z, gamma=gamma, eps=1e-6), torchs, tensors, dtype)


def test_strided_tensors_and_views():
    norm = normjit.torch.formula(GATED)
    packed = drawn(4, 6, 2, 32)
    x, z = packed[:, :, 0], packed[:, :, 1]
    torch.testing.assert_close(norm(x=x, z=z), norm(x=x.contiguous(), z=z.contiguous()))
    turned = drawn(32, 8).t()
    torch.testing.assert_close(norm(x=turned, z=turned), norm(x=turned.contiguous(), z=turned.contiguous()))


def llama(x, weight):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * h.to(x.dtype)


def gated_before(x, z, weight):
    h = x * torch.nn.functional.silu(z)
    return h / torch.sqrt((h * h).mean(-1, keepdim=True) + 1e-5) * (1 + weight)


def layer(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    c = x - mean
    return c * (c.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * weight + bias


def others(x, scale, weight):
    a = torch.tanh(x * 0.5) + torch.sigmoid(-x) - torch.exp(-x.abs())
    b = torch.maximum(a, x) * scale + (2 - a) / 3 + torch.nn.functional.gelu(x, approximate="tanh")
    b = b + torch.nn.functional.gelu(x) * 0.5
    return b * weight - b.sum(-1, keepdim=True) * 0.01


def maxima(x, weight):
    return (x / x.abs().amax(-1, keepdim=True)).softmax(-1) * weight + (x * 2).log_softmax(-1)


def rotated(x, weight):
    q = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return q * 0.6 + q.roll(25, -1) * 0.8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function, kinds", [(maxima, "mn"), (rotated, "mn"), (llama, "mn"), (gated_before, "mmn"), (layer, "mnn"), (others, "mrn")])
def test_rowwise(function, kinds, dtype):
    shapes = {"m": (4, 3, 50), "n": (50,), "r": (4, 3, 1)}
    tensors = [drawn(*shapes[kind], dtype=dtype, seed=i) for i, kind in enumerate(kinds)]
    wide = function if function is not llama else lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    assert_same(normjit.torch.rowwise(function), wide, tensors, torch.float32 if function is llama else dtype)


def test_what_is_not_rowwise_is_refused():
    x = drawn(4, 3, 8)
    for function, message in [(lambda x: x.transpose(0, 1), "aten.transpose.int, of shape .*: is not row-wise"),
                              (lambda x: x - x.mean(0, keepdim=True), "aten.mean.dim, of shape .*: is not row-wise"),
                              (lambda x: x.softmax(0), "aten._softmax.default, of shape .*: a softmax must be over the last dimension"),
                              (lambda x: x.roll(3, -1), "aten.roll.default, of shape .*: a row can be rolled by a half of it only"),
                              (lambda x: x.cumsum(-1), "aten.cumsum.default, of shape .*: is no operation of formulas"),
                              (lambda x: x.mean(), "must be over the last dimension")]:
        with pytest.raises(normjit.InvalidArgument, match=message):
            normjit.torch.rowwise(function)(x)


def with_a_value_without_use(x, w):
    w.exp().mul_(w)
    return x * 2


@pytest.mark.parametrize("function", [lambda x, w: x * 2, with_a_value_without_use])
def test_an_input_without_use_has_no_gradient(function):
    x, w = drawn(4, 8).requires_grad_(), drawn(8).requires_grad_()
    doubled = normjit.torch.rowwise(function)
    doubled(x, w).sum().backward()
    assert w.grad is None and torch.equal(x.grad, torch.full_like(x, 2))
    assert not doubled(x.detach(), w).requires_grad


def detached(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)).detach()


def without_gradients(x, weight):
    with torch.no_grad():
        scale = weight * 2
    return x * scale


def test_gradients_that_are_not_those_of_the_values_are_refused():
    x, weight = drawn(4, 8), drawn(8)
    with pytest.raises(normjit.InvalidArgument, match="its gradient of x is not the gradient of what it computes"):
        normjit.torch.rowwise(detached)(x)
    with pytest.raises(normjit.InvalidArgument, match="its gradient of weight is not the gradient of what it computes"):
        normjit.torch.rowwise(without_gradients)(x, weight)


def test_a_rowwise_function_takes_arguments_as_the_function_does():
    class Module:
        @normjit.torch.rowwise
        def scaled(self, x, *, by=2.0):
            return x * by

    x = drawn(4, 8)
    assert torch.equal(Module().scaled(x, by=3.0), x * 3) and torch.equal(Module().scaled(x), x * 2)
    assert Module.scaled.__name__ == "scaled"
    with pytest.raises(TypeError, match="too many positional arguments"):
        Module().scaled(x, x)
    with pytest.raises(normjit.InvalidArgument, match="unhashable type: 'list': arguments that are not tensors must be hashable constants"):
        Module().scaled(x, by=[1])
    with pytest.raises(normjit.InvalidArgument, match="has a parameter \\*x; each must have a name of its own"):
        normjit.torch.rowwise(lambda *x: x[0])


def test_the_type_of_a_rowwise_result():
    """Llama's norm with an f32 weight turns bf16 into f32, and rounds once."""
    x, weight = drawn(4, 64, dtype=torch.bfloat16), drawn(64)
    y = normjit.torch.rowwise(llama)(x, weight)
    h = x.double()
    right = weight * h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    assert y.dtype == llama(x, weight).dtype == torch.float32
    torch.testing.assert_close(y.double(), right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_groupnorm(compiled):
    images = torch.randn(3, 12, 5, 7, requires_grad=True)
    gamma, beta = torch.randn(12, requires_grad=True), torch.randn(12, requires_grad=True)

    def group_norm(x, weight, bias):
        y = normjit.torch.formula("groupnorm")(x=x.view(3, 4, -1).transpose(0, 1), gamma=weight.view(4, -1),
                                               beta=bias.view(4, -1), eps=1e-5)
        return y.transpose(0, 1).reshape(x.shape)

    function = torch.compile(group_norm, fullgraph=True) if compiled else group_norm
    above = torch.randn_like(images)
    expected = torch.nn.functional.group_norm(images, 4, gamma, beta)
    y = function(images, gamma, beta)
    torch.testing.assert_close(y, expected)
    leaves = images, gamma, beta
    got = torch.autograd.grad(y, leaves, above)
    torch.testing.assert_close(got, torch.autograd.grad(expected, leaves, above), rtol=1e-4, atol=1e-4)
    if compiled:
        return
    few = torch.randn(2, 8, 2, 3), torch.randn(8), torch.randn(8)
    assert torch.autograd.gradgradcheck(group_norm, [leaf.double().requires_grad_() for leaf in few])
    mapped = torch.func.vmap(group_norm, (0, None, None))(torch.stack([images, images]), gamma, beta)
    torch.testing.assert_close(mapped[1], expected)
    with pytest.raises(normjit.InvalidArgument, match="gamma: its shape is"):
        normjit.torch.formula("groupnorm")(x=images.view(3, 4, -1).transpose(0, 1), gamma=torch.ones(4, 8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("compiled", [False, True])
def test_dynamic_tanh_learns_its_scalar(compiled, dtype):
    norm = normjit.torch.formula("norm dyt(x[M,N], alpha[], gamma?[N], beta?[N]) -> y[M,N] { y = tanh(x * alpha) * gamma + beta }")
    leaves = x, alpha, gamma = drawn(6, 40).requires_grad_(), torch.tensor(0.75).to(dtype).requires_grad_(), drawn(40).requires_grad_()
    call = lambda x, alpha, gamma: norm(x=x, alpha=alpha, gamma=gamma)  # noqa: E731
    y, expected = (torch.compile(call, fullgraph=True) if compiled else call)(*leaves), torch.tanh(x * alpha) * gamma
    torch.testing.assert_close(y, expected)
    dy = drawn(6, 40, seed=3)
    both = torch.autograd.grad(y, leaves, dy), torch.autograd.grad(expected, leaves, dy)
    torch.testing.assert_close(*both, **({"rtol": 1e-6, "atol": 1e-6} if dtype == torch.float64 else {}))  # computed in f32
    if not compiled:
        assert torch.autograd.gradgradcheck(call, tuple(leaf.detach().double().requires_grad_() for leaf in leaves))


@pytest.mark.parametrize("cols", [1, 5])
def test_numbers_may_be_infinite(cols):
    norm = normjit.torch.formula("norm f(x[M,N]) -> y[M,N] { y = min(max(x * .5, -inf), 1 / (N - 1)) * 1e39 / inf }")
    assert_as_composed(norm, {"x": drawn(4, cols).double()}, None)
    norm = normjit.torch.formula("norm f(x[M,N]) -> y[M,N] { y = x * 0 + 1 / (N - 1) - 1 / 0 + (1 - 1) / (1 - 1) }")
    assert_as_composed(norm, {"x": drawn(4, cols).double()}, None)


def assert_as_composed(norm, given, dy):
    """Compares with the same formula in torch's operators, whose gradient is None for detached tensors."""
    leaves = [name for name, each in given.items() if isinstance(each, torch.Tensor)]
    tensors, numbers = [given[name] for name in leaves], {name: each for name, each in given.items() if name not in leaves}
    y, (right,) = norm(**given), normjit.torch.composition.forward(norm.text, leaves, tensors, numbers, norm.formula.outputs[:1])
    torch.testing.assert_close(y, right, equal_nan=True)
    wanted = [each for each in tensors if each.requires_grad]
    if not wanted:
        return []
    got = torch.autograd.grad(y, wanted, dy, allow_unused=True)
    for one, other, like in zip(got, torch.autograd.grad(right, wanted, dy, allow_unused=True), wanted):
        torch.testing.assert_close(*(torch.zeros_like(like) if each is None else each for each in (one, other)))
    return got


def test_views_that_turn_the_sign():
    norm = normjit.torch.formula("norm f(x[M,N], c[], r[M]) -> y[M,N] { y = x * c * r }")
    c = torch.tensor(1 + 3j).conj().imag
    turned, r = torch._neg_view(drawn(6, 8)), torch._neg_view(drawn(6, 1))
    assert c.is_neg() and turned.is_neg()
    assert_as_composed(norm, dict(x=torch.ones(6, 8), c=c, r=torch.ones(6)), None)
    assert_as_composed(norm, dict(x=turned.detach().requires_grad_(), c=c.requires_grad_(), r=r), turned)


ZERO = {"y = x * detach(gamma)": "gamma", "y = x * gamma / gamma": "gamma", "y = x * 2 * compare(gamma, 0)": "gamma",
        "y = x - c + c + gamma": "c", "y = x * 3": "", "y = x * c + gamma * k": "gamma"}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("body", ZERO)
def test_gradients_that_are_0(body, compiled):
    torch._dynamo.reset()
    norm = normjit.torch.formula(f"norm f(x[M,N], gamma[N], c[]) -> y[M,N] {{ {body} }}")
    tensors = drawn(6, 8).requires_grad_(), drawn(8).requires_grad_(), torch.tensor(2.0).requires_grad_()
    numbers, given = {"k": 0.0} if "k" in body else {}, dict(zip(norm.formula.inputs, tensors))
    unused = [name for name in given if not re.search(rf"\b{name}\b", body)]
    if not compiled:
        got = dict(zip(given, assert_as_composed(norm, {**given, **numbers}, drawn(6, 8, seed=4))))
        assert [name for name in got if got[name] is None] == unused
        used = [each for name, each in given.items() if name not in unused]
        torch.autograd.grad(norm(**given, **numbers).sum(), used, create_graph=True)[0].sum()
        of_batch = torch.autograd.grad(norm(**given, **numbers), used, torch.ones(3, 6, 8), is_grads_batched=True)
        assert [each.shape for each in of_batch] == [(3, *each.shape) for each in used]
    call = lambda x, gamma, c: norm(x=x, gamma=gamma, c=c, **numbers)  # noqa: E731
    call = torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call
    call(*tensors).sum().backward()
    assert [name for name in given if given[name].grad is None] == unused
    assert [name for name in given if name not in unused and not given[name].grad.any()] == ZERO[body].split()
    only = [each.detach().requires_grad_(name == ZERO[body]) for name, each in given.items()]
    if ZERO[body]:
        call(*only).sum().backward()
        assert not only[list(given).index(ZERO[body])].grad.any()


def test_numbers_that_are_runs():
    norm, x = normjit.torch.formula("groupnorm"), drawn(2, 3, 8)
    given = dict(x=x.requires_grad_(), gamma=drawn(2, 4).requires_grad_())
    expected = assert_as_composed(norm, given, x.detach())
    got = assert_as_composed(norm, dict(given, R=2), x.detach())
    assert all(torch.equal(one, other) for one, other in zip(got, expected))
    assert norm(x=x, R=2).shape == x.shape
    for run, message in [(4, r"gamma: its shape is \(2, 4\); must be \(2, 2\)"), (3, "R: 3; must be a whole number that divides 8, the columns of x"),
                         (0, "R: 0; must be a whole"), (-2, "R: -2; must"), (2.5, "R: 2.5; must"), (float("inf"), "R: inf; must"),
                         (float("nan"), "R: nan; must"), ("2", "R: is str; must be a number")]:
        with pytest.raises(normjit.InvalidArgument, match=message):
            norm(**given, R=run)


@pytest.mark.parametrize("columns", [32, 128])
def test_outputs_for_groups_of_columns(columns):
    norm = normjit.torch.formula("norm f(x[M,N], gamma[N]) -> y[M,N], g[M,N/G] { g = group_max(abs(x), G); y = x / g * gamma }")
    x, gamma = drawn(2, 3, 256, dtype=torch.bfloat16), drawn(256)
    largest = x.float().abs().unflatten(-1, (-1, columns)).amax(-1)
    right = x.float() / largest.repeat_interleave(columns, -1) * gamma
    for function in (norm, torch.compile(norm, backend="aot_eager", fullgraph=True)):
        y, g = function(x=x, gamma=gamma, G=columns)
        assert g.dtype == torch.float32 and torch.equal(g, largest)
        torch.testing.assert_close(y, right.bfloat16())
    of_slices = torch.func.vmap(lambda each: norm(x=each, gamma=gamma, G=columns))(x)
    torch.testing.assert_close(of_slices[0], right.bfloat16())
    assert torch.equal(of_slices[1], largest)
    assert [tuple(each.shape) for each in norm(x=x[:0], gamma=gamma, G=columns)] == [(0, 3, 256), (0, 3, 256 // columns)]
    x.requires_grad_()
    for i, message in enumerate(("group_max has no derivative", "g: an output .M,N/G. has no gradient")):
        with pytest.raises(normjit.InvalidArgument, match=message):
            norm(x=x, gamma=gamma, G=columns)[i].sum().backward()
    beside = normjit.torch.formula("norm f(x[M,N]) -> y[M,N], g[M,N/G] { g = group_max(abs(x), G); y = x * 2 }")
    beside(x=x, G=columns)[0].sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))


class Without(torch.autograd.Function):
    """A function without a gradient."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, dy):
        return None


def test_an_output_without_use_takes_no_part_in_gradients():
    norm = normjit.torch.formula("norm two(x[M,N], w[N]) -> y[M,N], z[M,N] { y = x * 2; z = log(x) * w }")
    x, w = torch.tensor([[0.0, 1.0]], requires_grad=True), torch.ones(2, requires_grad=True)
    for compute in (norm, torch.compile(lambda **given: (norm(**given)[0],), fullgraph=True, backend="aot_eager")):
        dx, dw = torch.autograd.grad(compute(x=x, w=w)[0].sum(), (x, w), allow_unused=True)
        assert dx.tolist() == [[2, 2]]
        assert dw is None or not dw.any()  # AOT Autograd gives zeros
    y, z = norm(x=x, w=w)
    assert torch.autograd.grad((Without.apply(y) + Without.apply(z)).sum(), (x, w), allow_unused=True) == (None, None)
    of_columns = normjit.torch.formula("norm f(x[M,N], m[M]) -> y[M,N], s[M] { y = x * m; s = exp(m) }")
    m = torch.ones(1, requires_grad=True)
    assert torch.autograd.grad(of_columns(x=x, m=m)[1].sum(), (x, m), allow_unused=True) == (None, m.exp())
    gated = normjit.formula(GATED)
    assert normjit.formula(gated.with_optional(gated.outputs)).optional == ("gamma", "y", "rstd")


def test_names_that_python_has_another_use_for():
    x = drawn(4, 8)
    norm = normjit.torch.formula("norm class(ef[M,N], x[M,N]) -> class[M,N], _y[M,N], r?[M] { r = row_mean(x); class = x * r; _y = x * ef }")
    tensors = [x.clone().requires_grad_() for _ in range(2)]
    one, other = norm(x=tensors[0], ef=tensors[1])
    torch.testing.assert_close(other, x * x)
    other.sum().backward()
    torch.testing.assert_close(tensors[1].grad, x)
    with pytest.raises(normjit.InvalidArgument, match="formula: 'self' is an argument of each call"):
        normjit.torch.formula("norm f(x[M,N], self[N]) -> y[M,N] { y = x * self }")


def test_the_first_input_may_be_missing():
    x = drawn(4, 8)
    for first in ("gamma?[N]", "a?[M,N]"):
        norm = normjit.torch.formula(f"norm f({first}, x[M,N]) -> y[M,N] {{ y = x * 2 * {first.partition('?')[0]} }}")
        assert_as_composed(norm, dict(x=x.clone().requires_grad_()), x)
    with pytest.raises(normjit.InvalidArgument, match="none of the matrices is given"):
        normjit.torch.formula("norm f(a?[M,N], b?[M,N]) -> y[M,N] { y = a * b * 2 }")()


@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 8), (0, 8)])
@pytest.mark.parametrize("function", [normjit.torch.rowwise(lambda x: x * 2), normjit.torch.RMSNorm(8), normjit.torch.LayerNorm(8)])
def test_results_can_be_written_to(function, shape):
    """Results can be changed in place before a backward pass, as those of torch's operators can."""
    x = drawn(*shape).requires_grad_()
    (wanted,) = torch.autograd.grad(3 * function(x).sum(), x)
    assert torch.equal(torch.autograd.grad(function(x).mul_(3).sum(), x)[0], wanted)


def test_numbers_of_rows_that_all_slices_share():
    text = """norm instance_norm(x[S,M,N], gamma[S,M], beta[S,M]) -> y[S,M,N], rstd?[S,M]
        d    = x - row_mean(x)
        rstd = rsqrt(row_mean(d * d) + eps)
        y    = d * rstd * gamma + beta"""
    norm = normjit.torch.formula(text)
    assert_same(lambda x, gamma, beta: norm(x=x, gamma=gamma.expand(4, 6), beta=beta[::2].expand(4, 6)),
                lambda x, gamma, beta: torch.nn.functional.instance_norm(x, weight=gamma, bias=beta[::2]),
                [drawn(4, 6, 50), drawn(6, seed=1), drawn(12, seed=2)], torch.float32)
