# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.compile(backend="normjit") on a GPU: norms whose numbers are inputs of the graph, in the host's memory."""
import normjit.torch
import pytest
import torch
from graph_models import rms
from normjit.torch import graph, graph_operator

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Norm(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, cols))
        self.eps, self.scale = 1e-3, 0.75

    def forward(self, x):
        return rms(x, self.weight, self.eps) * self.scale


def results(call, norm, x, dy):
    x = x.detach().requires_grad_()
    y = call(x)
    return y, *torch.autograd.grad(y, [x, norm.weight], dy)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_eps_and_a_factor_are_inputs_of_one_kernel(dtype, graphs):
    """With dynamic=True, other values of a module's numbers need no other graph, and the host waits for nothing."""
    if graphs and dtype == torch.float64:
        pytest.skip("the launcher that Inductor generates for the backward pass crashes with torch 2.11; not examined")
    torch._dynamo.reset()
    graph._reported.clear()
    graph_operator.calls.clear()
    torch.manual_seed(0)
    norm = Norm(1024).to("cuda", dtype)
    options = {"normjit.take": "all", "triton.cudagraphs": graphs}
    compiled = torch.compile(norm, backend="normjit", dynamic=True, fullgraph=True, options=options)
    bound = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]
    for rows, eps, scale in ((64, 1e-3, 0.75), (64, 0.5, 0.75), (96, 2.0, 1.5), (96, 0.25, -1.0), (96, 0.0, 2.0)):
        norm.eps, norm.scale = eps, scale
        x, dy = (torch.randn(3, rows, 1024, device="cuda", dtype=dtype) for _ in range(2))
        got = [each.clone() for each in results(compiled, norm, x, dy)]
        wide = Norm(1024).to("cuda", torch.float64)
        wide.load_state_dict(norm.state_dict())
        wide.eps, wide.scale = eps, scale
        for each, right in zip(got, results(wide, wide, x.double(), dy.double())):
            assert float(((each - right).norm() / right.norm()).detach()) <= bound, (rows, eps, scale)
    forward, backward = normjit.torch.graph_report()
    assert forward["taken"] and backward["taken"]
    header = forward["formula"].partition(" -> ")[0]
    assert header.count("[]") == 2 and "rsqrt" in forward["formula"], forward
    if graphs:
        return
    assert forward["calls"] == 5
    torch.cuda.set_sync_debug_mode("error")
    try:
        results(compiled, norm, x, dy)
    finally:
        torch.cuda.set_sync_debug_mode("default")
