# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.compile(backend="normjit") with passes of the user."""
import pytest
import torch
from normjit.torch import graph


@pytest.mark.skipif(graph.InferenceAware is None, reason="this version of torch has no such passes")
def test_passes_that_ask_whether_a_graph_is_for_inference():
    class Asking(graph.InferenceAware or object):
        def __call__(self, graph, is_inference):
            seen.append(is_inference)

        def uuid(self):
            return None

    torch._dynamo.reset()
    seen, x = [], torch.randn(4, 16)
    settings = {"post_grad_custom_pre_pass": Asking(), "normjit.take": "none"}
    compiled = torch.compile(torch.tanh, backend="normjit", options=settings)
    compiled(x)
    compiled(x.requires_grad_()).sum().backward()
    assert seen == [True, False, False]
