# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Tests row-wise functions with several results: their values, gradients that arrive at some or all of them, and their
order."""
import itertools

import normjit
import pytest
import torch
from normjit.torch import rowwise
from torch.nn import functional
from torch_formula_cases import leaf


def of_stream(x, r, w, eps=1e-6):
    h = x + r
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps) * w, h


def in_float(x, r, w):
    h = x.float() + r
    rstd = torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)
    return (h * rstd * w).to(x.dtype), [h, rstd]


def with_statistics(x, r, w):
    c = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(c.square().mean(-1) + 1e-5)
    return c * rstd[..., None] * w + r, [(rstd, None), x.mean(-1, keepdim=True)]


def with_arguments(x, r, w):
    y = functional.silu(x) * r
    return x, (y, w, y), r * w


def losses(x, r, w):
    return (functional.log_softmax(x * w, -1) * r).sum(-1), torch.logsumexp(x, -1, keepdim=True)


FUNCTIONS = [of_stream, in_float, with_statistics, with_arguments, losses]


def drawn(*shape, dtype=torch.float32):
    return [leaf(*each, dtype=dtype, seed=i) for i, each in enumerate((shape, shape, shape[-1:]))]


def flat(results):
    if isinstance(results, (tuple, list)):
        return [each for part in results for each in flat(part)]
    return [] if results is None else [results]


def gradients(results, leaves, used):
    total = sum((i + 1) * results[i].double().square().sum() for i in used)
    return torch.autograd.grad(total, leaves, allow_unused=True)


def assert_close(got, wanted, tolerance):
    for one, other in zip(got, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance * float(1 + other.detach().norm()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(5, 3, 33), (8,), (0, 4), (5, 1)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_and_gradients_are_torchs(function, shape, dtype):
    leaves = drawn(*shape, dtype=dtype)
    wide = [each.detach().double().requires_grad_() for each in leaves]
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float64: 1e-6 if function is in_float else 1e-10}[dtype]
    of_rows = rowwise(function)
    got, like, right = flat(of_rows(*leaves)), flat(function(*leaves)), flat(function(*wide))
    assert [(each.shape, each.dtype) for each in got] == [(each.shape, each.dtype) for each in like]
    if shape[0]:
        assert_close(got, right, tolerance)
    for used in itertools.chain.from_iterable(itertools.combinations(range(len(got)), count) for count in range(1, len(got) + 1)):
        made = gradients(flat(of_rows(*leaves)), leaves, used)
        assert_close(made, gradients(flat(function(*wide)), wide, used), tolerance if shape[0] else torch.inf)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_order_and_identity(function):
    def places(results):
        if isinstance(results, (tuple, list)):
            return type(results), *map(places, results)
        return results if results is None else [results is each for each in (*leaves, *flat(made))]

    leaves = drawn(4, 8)
    made = rowwise(function)(*leaves)
    got = places(made)
    made = function(*leaves)
    assert got == places(made)


@pytest.mark.parametrize("function", [lambda x: x, lambda x: (x, [x]), lambda x: None, lambda x: (), lambda x: (x, None)])
def test_nothing_is_computed(function):
    x = leaf(2, 8, dtype=torch.float32)
    got, wanted = rowwise(function)(x), function(x)
    assert type(got) is type(wanted) and [each is x for each in flat(got)] == [True for _ in flat(wanted)]


def test_results_may_be_written_to():
    leaves = drawn(4, 8)
    results = rowwise(in_float)(*leaves)
    for each in flat(results):
        each.mul_(2)
    assert_close(gradients(flat(results), leaves, (0, 1, 2)), gradients([2 * each for each in flat(in_float(*leaves))], leaves, (0, 1, 2)), 1e-5)


def test_a_result_without_use_takes_no_part_in_gradients():
    x = torch.tensor([[0.0, 1.0]], requires_grad=True)
    assert torch.autograd.grad(rowwise(lambda x: (x * 2, x.log()))(x)[0].sum(), x)[0].tolist() == [[2, 2]]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled(function, backend):
    of_rows = rowwise(function)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *leaves: of_rows(*leaves), fullgraph=True, dynamic=True, backend=backend)
    for rows in (4, 7):
        leaves = drawn(rows, 8)
        made, right = compiled(*leaves), function(*leaves)
        assert torch.utils._pytree.tree_structure(made) == torch.utils._pytree.tree_structure(right)
        got, wanted = flat(made), flat(right)
        assert_close(got, wanted, 1e-5)
        for used in ((0,), (len(got) - 1,), range(len(got))):
            made = gradients(flat(compiled(*leaves)), leaves, used)
            for one, other in zip(made, gradients(flat(function(*leaves)), leaves, used)):
                other = torch.zeros_like(one) if other is None and one is not None else other  # AOT Autograd gives zeros
                assert_close([one], [other], 1e-4)


@pytest.mark.parametrize("function", [of_stream, with_statistics, with_arguments, losses])
def test_derivatives(function):
    leaves, of_rows = drawn(3, 5, dtype=torch.float64), rowwise(function)
    both = lambda *leaves: tuple(flat(of_rows(*leaves)))  # noqa: E731
    assert torch.autograd.gradcheck(both, leaves, check_batched_grad=True, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(both, leaves)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_modes(function):
    leaves, of_rows = drawn(3, 8), rowwise(function)
    right = function(*leaves)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(flat(of_rows(*leaves)), flat(right), 1e-5)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = flat(of_rows(*[mode.from_tensor(each) for each in leaves]))
    for made in (fake, flat(of_rows(*[each.detach().to("meta") for each in leaves]))):
        assert [(each.shape, each.dtype) for each in made] == [(each.shape, each.dtype) for each in flat(right)]
    batch = [torch.stack([each.detach()] * 2) for each in leaves[:2]]
    together = torch.vmap(lambda x, r: flat(of_rows(x, r, leaves[2])))(*batch)
    assert_close([each[0] for each in together], flat(right), 1e-5)


@pytest.mark.parametrize("function, message", [
    (lambda x: {x * 2}, "returns set; must return tensors and None, in tuples, named tuples, lists and dicts of any depth"),
    (lambda x: (x * 2, 3.0), "returns float; must return tensors and None"),
    (lambda x: (x * 2, x > 0), r"aten.gt.Scalar, .*: makes a tensor of torch.bool; results are floating-point numbers or torch.int8"),
    (lambda x: x > 0, "makes a tensor of torch.bool; results are floating-point numbers or torch.int8"),
    (lambda x: torch.aminmax(x, dim=-1), "returns aminmax; must return tensors and None"),
    (lambda x, w: (x * 2, w * 2), "each result must be a tensor of the shape of x, or of that shape with a last dimension of 1"),
    (lambda x: (x * 2, x[0]), "aten.select.int, .*: a row can be cut"),
    (lambda x: (x * 2, (x * 3).detach()), "its gradient of x is not the gradient of what it computes"),
    (lambda x: (x * 2, x.detach()), "its gradient of x is not the gradient of what it computes"),
    (lambda x: (x * 2, x * 3)[: 1 if x.device.type == "meta" else 2], "computes something else than was traced"),
    (lambda x: (x * 2, x * 3)[: 1 if len(x) > 3 else 2], "computes something else for another number of rows"),
    (lambda x: [x, x * 3] if len(x) > 3 else (x, x * 3), "computes something else for another number of rows")])
def test_refused(function, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        rowwise(function)(torch.ones(6, 8), *[torch.ones(8)] * (function.__code__.co_argcount - 1))


def test_results_of_columns_alone():
    shifted = rowwise(lambda x, m: (x, m * 2))
    with pytest.raises(normjit.InvalidArgument, match="no result is computed from x or another tensor of its shape; one must be"):
        shifted(torch.ones(6, 8), torch.ones(6, 1))


@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.parametrize("function", [lambda x, r: (x * x.mean(-1, keepdim=True), r * r), lambda x, r: x.mean(-1, keepdim=True) + r * r,
                                      lambda x, r: (x * x.detach().sign(), r.exp() * r)])
def test_gradients_of_row_values_alone(function, is_wanted):
    """The gradient of r reads no matrix, whether or not gradients of matrices arrive."""
    x, r = leaf(3, 8), leaf(3, 1, seed=1)
    x.requires_grad_(is_wanted)
    compiled = torch.compile(rowwise(function), fullgraph=True, backend="aot_eager")
    for made in (rowwise(function), compiled):
        for used in itertools.product((0, 1), repeat=len(flat(function(x, r)))):
            pairs = [[y.square().sum() for y, is_used in zip(flat(f(x, r)), used) if is_used] for f in (made, function)]
            if pairs[1] and sum(pairs[1]).requires_grad:
                got, wanted = (torch.autograd.grad(sum(each), r, allow_unused=True, materialize_grads=True) for each in pairs)
                torch.testing.assert_close(got, wanted)
