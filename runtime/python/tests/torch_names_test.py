# SPDX-License-Identifier: Apache-2.0
# needs: torch
"""patch() of norms whose parameters are not called weight and bias."""
import copy
import pickle

import normjit.torch
import pytest
import torch
from torch_cases import Served, leaf


class Named(torch.nn.Module):
    """LayerNorm, or with one name RMSNorm, whose weight and bias have these names, and are made in this order."""

    def __init__(self, weight, bias=None, bias_first=False):
        super().__init__()
        self.eps, self.names = 1e-6, (weight, bias)
        for name in self.names[::-1] if bias_first else self.names:
            if name is not None:
                self.register_parameter(name, torch.nn.Parameter(leaf(len(name), 8).detach()))

    def forward(self, hidden):
        weight, bias = self.names
        if bias is None:
            return torch.nn.functional.rms_norm(hidden.float(), (8,), getattr(self, weight), self.eps).to(hidden.dtype)
        return torch.nn.functional.layer_norm(hidden, (8,), getattr(self, weight), getattr(self, bias), self.eps)


class Other(Named):
    """Has another gradient of the weight for one input."""

    def forward(self, hidden):
        y = super().forward(hidden)
        extra = 5 * (self.scale - self.scale.detach())
        return y + extra if float(hidden.detach().flatten()[0]) == 1234.0 else y


class ScaledAndGated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.eps = torch.nn.Parameter(leaf(1, 8).detach()), 1e-6

    def forward(self, x, gate):
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return self.scale * normed * torch.nn.functional.silu(gate)


NAMES = [("scale",), ("gamma", "beta"), ("gamma", "beta", True), ("weight", "shift"), ("w", "b", True), ("gate", "x")]


def passes(module, x):
    x = x.detach().requires_grad_()
    y = module(x)
    return y, *torch.autograd.grad(y.pow(3).sum(), [x, *module.parameters()])


@pytest.mark.parametrize("options", [{}, {"forward": True}, {"verify": True}])
@pytest.mark.parametrize("names", NAMES)
def test_names(names, options):
    plain, x = Named(*names), leaf(1, 3, 8)
    wanted = passes(plain.double(), x.double())
    model = normjit.torch.patch(torch.nn.Sequential(plain.float()), **options)
    copies = [model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for each in copies:
        with Served(1 + ("forward" in options) + ("verify" in options)):
            got = passes(each[0], x)
        for one, other in zip(got, wanted):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
    assert normjit.torch.prepare(model, rows=3) == 1
    ((name, _, whose, times),) = normjit.torch.report(model, rows=64)["norms"]
    assert (name, whose) == ("0", "normjit's, by patch()") and times > 0
    assert passes(normjit.torch.unpatch(model)[0], x)[0].grad_fn is not None


def test_verify_raises():
    """The gradient of a weight with another name is compared as well."""
    module, x = normjit.torch.patch(Other("scale"), verify=True), leaf(1, 3, 8).detach()
    x[0, 0] = 1234.0
    with pytest.raises(normjit.Error, match="the gradient of weight differs from"):
        module(x).sum().backward()


def test_gate():
    plain, inputs = ScaledAndGated(), [leaf(i, 3, 8) for i in (1, 2)]
    wanted = torch.autograd.grad(plain(*inputs).pow(3).sum(), [*inputs, plain.scale])
    module = normjit.torch.patch(plain)
    y = module(*inputs)
    assert "_Gated" in y.grad_fn.name()
    torch.testing.assert_close(torch.autograd.grad(y.pow(3).sum(), [*inputs, plain.scale]), wanted)
    assert normjit.torch.report(module)["norms"][0][2] == "normjit's, by patch()"


def test_compiled():
    plain, x = Named("scale"), leaf(1, 3, 8)
    wanted = passes(plain, x)
    model = torch.compile(normjit.torch.patch(plain), backend="aot_eager", fullgraph=True)
    with Served(1):
        got = passes(model, x)
    torch.testing.assert_close(got, wanted)


def test_a_parameter_that_is_none():
    """A weight of None is no norm's, even if there is another parameter; a bias of None is none."""
    module = Named("scale")
    module.register_parameter("shift", None)
    assert normjit.torch.found(module)[0].norm == "rmsnorm"
    module.register_parameter("weight", None)
    assert normjit.torch.found(module)[0].reason == "it has no weight"
