# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.export of programs with normjit's norms: they compute what the module does, and so do their gradients."""
import normjit.torch
import pytest
import torch
from torch_cases import leaf
from torch_gates import GateThenNorm, NormThenGate
from torch_modules import InPython, Plain


class Functions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(leaf(1, 8).detach())

    def forward(self, x):
        y, h = normjit.torch.layer_norm(x, self.weight, residual=x.sin())
        return normjit.torch.rms_norm(y, self.weight) * h


class WithGate(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.norm = normjit.torch.patch(kind())

    def forward(self, x):
        return self.norm(x, x.sin())


def gradients(module, x):
    return torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("make", [
    Functions, lambda: normjit.torch.patch(InPython()), lambda: normjit.torch.patch(Plain()), lambda: WithGate(NormThenGate),
    lambda: WithGate(GateThenNorm), lambda: normjit.torch.patch(InPython(), forward=True)])
def test_exported_programs_have_gradients(make, strict):
    module = make()
    x = leaf(2, 3, 5, next(module.parameters()).shape[-1])
    exported = torch.export.export(module, (x.detach(),), strict=strict).module()
    torch.testing.assert_close(exported(x), module(x))
    for got, wanted in zip(gradients(exported, x), gradients(module, x)):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
