# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Graphs with tensors of one element that go into every row."""
import normjit.torch
import pytest
import torch
from graph_models import Model, Rewritten, rms
from normjit.torch import graph

FUNCTIONS = {  # each with the axes of its forward kernel's inputs
    "eps": (lambda m, x: rms(x, m.weight, m.eps), ["M,N", "", "N"]),
    "a factor": (lambda m, x: rms(torch.tanh(m.alpha * x), m.weight), ["", "", "M,N", "N"]),
    "a factor of each sample's rows": (lambda m, x: m.plain(x * m.alpha) * x[:, :1].exp(), ["S,M,N", "", "S,N"]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalars_are_inputs_of_kernels(name):
    """With dynamic=True a number of a module, such as eps, is an input of the graph."""
    torch._dynamo.reset()
    graph._reported.clear()
    torch.manual_seed(0)
    function, axes = FUNCTIONS[name]
    model, x = Model(function).double(), torch.randn(3, 5, 16, dtype=torch.float64, requires_grad=True)
    model.eps, model.alpha = 1e-3, torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    inputs = [x, model.weight if name == "eps" else model.alpha]
    compiled = torch.compile(model, backend=Rewritten(), dynamic=True)
    got, wanted = (torch.autograd.grad(call(x).square().sum(), inputs) for call in (compiled, model))
    torch.testing.assert_close(got, wanted)
    forward = normjit.torch.graph_report()[0]
    header = forward["formula"].partition(" -> ")[0]
    assert [each.partition("[")[2] for each in header.split("]")[:-1]] == axes, forward
