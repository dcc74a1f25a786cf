# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Graphs with an extreme, whose backward pass looks for the elements that are equal to it, and may compute them again."""
import normjit.torch
import pytest
import torch
from graph_models import COLS, Model, Rewritten
from normjit.torch import graph
from torch.nn import functional

FUNCTIONS = {
    "over tokens": lambda m, x: m.layer_norm(x).amax(1),
    "least of a function": lambda m, x: m.layer_norm(m.linear(x)).tanh().amin(1),
    "of rows": lambda m, x: m.layer_norm(x).amax(-1),
    "of computed columns": lambda m, x: functional.rms_norm(x, (COLS,), m.weight.exp()).amax(-1) * m.rms_norm(x).mean(-1),
    "of all tokens": lambda m, x: m.layer_norm(x).amax((0, 1)),
    "of each sample": lambda m, x: torch.stack([each.max() for each in m.layer_norm(x)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_elements_that_are_equal_to_an_extreme_are_found(function, dtype):
    torch._dynamo.reset()
    graph._reported.clear()
    torch.manual_seed(0)
    model, x = Model(function).to(dtype), torch.randn(8, 32, COLS, dtype=dtype, requires_grad=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) / 8
    backend = Rewritten()
    got, wanted = (torch.autograd.grad(call(x).square().sum(), x)[0] for call in (torch.compile(model, backend=backend), model))
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
    assert any(each["taken"] for each in normjit.torch.graph_report())
