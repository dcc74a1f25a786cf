# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""What rowwise() takes and refuses: arguments, traces, and gradients. Values and modes are in torch_formulas_test.py."""
import math

import normjit
import pytest
import torch
from normjit.torch import rowwise


def ones(*shape, **named):
    return torch.ones(*(shape or (6, 8)), **named)


@pytest.mark.parametrize("function", [
    lambda x: torch.rsub(x, 1.0, alpha=1.02), lambda x: torch.ops.aten.sub.Scalar(x, 2.0, 3), lambda x: 1 - x,
    lambda x: torch.ops.aten.add.Scalar(x, 2.0, -3), lambda x: torch.sub(x, x * x, alpha=3), lambda x: torch.add(x, 2, alpha=3)])
def test_alpha(function):
    x = ones() * 1.5
    torch.testing.assert_close(rowwise(function)(x), function(x))


def test_equal_constants_that_code_tells_apart_have_traces_of_their_own():
    by_type = rowwise(lambda x, k: x * (7 if k is True else 3 if isinstance(k, int) else 5))
    by_sign = rowwise(lambda x, k: x * math.copysign(3, k[0]))
    for _ in range(2):
        assert [by_type(ones(), k)[0, 0].item() for k in (1, True, 1.0)] == [3, 7, 5]
        assert [by_sign(ones(), (k,))[0, 0].item() for k in (0.0, -0.0)] == [3, -3]


def scaled(x, w=None, *, bias=None, by=1.0):
    y = x * by if w is None else x * w * by
    return y if bias is None else y + bias


@pytest.mark.parametrize("arguments, named", [
    ((ones(3, 8), ones(8)), {}), ((), dict(w=ones(8), x=ones(3, 8))), ((ones(3, 8),), dict(by=2.0, w=ones(3, 1))),
    ((), dict(bias=ones(8), by=3.0, x=ones(3, 8))), ((ones(3, 8), None), dict(bias=ones(3, 1)))])
def test_the_first_tensor_is_that_of_the_first_parameter(arguments, named):
    assert torch.equal(rowwise(scaled)(*arguments, **named), scaled(*arguments, **named))


def positional_only(x, /, w):
    return x * w


def test_arguments_that_do_not_fit():
    for arguments, named, message in [((ones(), None, None), {}, "too many positional arguments"),
                                      ((ones(),), dict(x=ones()), "multiple values for argument 'x'"),
                                      ((ones(),), dict(z=ones()), "an unexpected keyword argument 'z'"),
                                      ((), dict(w=ones(8)), "missing a required .*argument: 'x'")]:
        with pytest.raises(TypeError, match=message):
            rowwise(scaled)(*arguments, **named)
    assert torch.equal(rowwise(positional_only)(ones(), w=ones(8)), ones())


@pytest.mark.parametrize("function", [
    lambda a, ba: ba * 2, lambda x, dx: x * dx, lambda é, e: é - e * 2, lambda x, x_0: x - x_0 * 2, lambda y, dy: y * dy,
    lambda _, v0: _ / v0, lambda N, a_name_that_is_longer_than_the_40_letters_of_a_formula: N * 2,
    lambda lambda_, row_mean: lambda_ * row_mean])
def test_names_of_parameters(function):
    leaves = (ones() * 2).requires_grad_(), (ones() * 3).requires_grad_()
    y, right = rowwise(function)(*leaves), function(*leaves)
    torch.testing.assert_close(y, right)
    for got, wanted in zip(*(torch.autograd.grad(each.sum(), leaves, allow_unused=True) for each in (y, right))):
        torch.testing.assert_close(got, wanted)
