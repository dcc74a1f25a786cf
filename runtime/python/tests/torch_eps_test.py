# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Where patch() finds the eps of a norm: in an attribute, or only in the code."""
import copy

import normjit.torch
import pytest
import torch
from torch_cases import Served, leaf


class WithOffset(torch.nn.Module):
    """Has two attributes that may be its eps; the other one is the offset of its weight."""

    def __init__(self):
        super().__init__()
        self.weight, self.offset, self.epsilon = torch.nn.Parameter(leaf(1, 8).detach()), 0.0, 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * (self.weight + self.offset)


def test_eps_beside_another_small_number():
    module, x = normjit.torch.patch(WithOffset()), leaf(2, 3, 8)
    assert normjit.torch.found(module)[0].eps_name == "epsilon"
    with Served(1):
        module(x).sum().backward()
    module.offset = 0.5
    with Served(0):
        module(x).sum().backward()
    assert "its attribute offset is not what it was" in normjit.torch.report(module)["norms"][0][2]


class NormOfCode(torch.nn.Module):
    """A norm whose code has its eps. Its attribute, if there is one, counts for nothing."""

    def __init__(self, code, has_bias=False, **attributes):
        super().__init__()
        vars(self).update(attributes)
        self.code = code
        self.weight = torch.nn.Parameter(leaf(1, 8).detach())
        self.bias = torch.nn.Parameter(leaf(3, 8).detach()) if has_bias else None

    def forward(self, x):
        return self.code(x, self.weight, self.bias)


class NoNorm(NormOfCode):
    def __init__(self):
        super().__init__(lambda x, weight, bias: x * weight)


class Normalized(NormOfCode):
    """Differs from RMSNorm for rows of zeros, whatever the eps."""

    def __init__(self):
        super().__init__(lambda x, weight, bias: torch.nn.functional.normalize(x, dim=-1) * 8**0.5 * weight)


def in_python(x, weight, eps):
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


functional = torch.nn.functional
CODES = {
    "nanoGPT": (lambda x, w, b: functional.layer_norm(x, w.shape, w, b, 1e-5), {"has_bias": True}, "layernorm", 1e-5, 0.0),
    "no bias": (lambda x, w, b: functional.layer_norm(x, w.shape, w, b, 3e-12), {}, "layernorm", 3e-12, 0.0),
    "another": (lambda x, w, b: functional.rms_norm(x, (8,), w, 1e-4), {"eps": 1e-6}, "rmsnorm", 1e-4, 0.0),
    "of type": (lambda x, w, b: functional.rms_norm(x, (8,), w), {}, "rmsnorm", None, 0.0),
    "centred": (lambda x, w, b: in_python(x, 1 + w, 0.012345), {}, "rmsnorm", 0.012345, 1.0),
}


@pytest.mark.parametrize("code", CODES)
def test_eps_in_the_code(code):
    function, attributes, norm, eps, offset = CODES[code]
    plain, x = NormOfCode(function, **attributes), leaf(2, 3, 8)
    (found,) = normjit.torch.found(plain)
    assert (found.norm, found.eps_name, found.weight_offset) == (norm, None, offset)
    assert found.eps == (None if eps is None else pytest.approx(eps, rel=1e-6))
    model = normjit.torch.patch(copy.deepcopy(plain))
    leaves = lambda module: [x, *module.parameters()]  # noqa: E731
    with Served(1):
        got = torch.autograd.grad(model(x).square().sum(), leaves(model))
    for one, other in zip(got, torch.autograd.grad(plain(x).square().sum(), leaves(plain))):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", [torch.nn.LayerNorm, torch.nn.RMSNorm])
@pytest.mark.parametrize("eps, told", [(-1e-3, "-0.001"), (0.5, "0.5"), (1, "1")])
def test_an_eps_that_patch_does_not_know_is_named(kind, eps, told):
    (found,) = normjit.torch.found(kind(8, eps=eps))
    assert found.norm is None and found.reason == f"its eps is {told}; known: a float that is at least 0 and below 0.1"


@pytest.mark.parametrize("kind", [NoNorm, Normalized])
def test_norms_without_an_eps(kind):
    (found,) = normjit.torch.found(kind())
    assert found.norm is None and found.reason == "it has no eps"
