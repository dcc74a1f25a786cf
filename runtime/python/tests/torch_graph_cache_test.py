# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.compile(backend="normjit") and Inductor's cache of compiled graphs."""
import normjit.torch
import torch


def test_a_graph_without_autograd_is_not_taken_from_the_cache(monkeypatch, tmp_path):
    """Nothing is recorded in the first call, as after a failed torch.export. The second has a gradient nevertheless."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, x, all_of_them = torch.nn.LayerNorm(16), torch.randn(4, 16), {"normjit.take": "all"}
    torch._dynamo.reset()
    with torch._C._AutoDispatchBelowAutograd():
        assert not torch.compile(model, backend="normjit", options=all_of_them)(x).requires_grad
    for is_cached in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.compile(model, backend="normjit", options=all_of_them)(x).sum().backward()
        assert bool(torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]) == is_cached
