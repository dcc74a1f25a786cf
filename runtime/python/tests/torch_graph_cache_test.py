# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.compile(backend="normjit") and Inductor's cache of compiled graphs."""
import normjit.torch
import torch
from processes import run_program


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


def test_the_operators_of_graphs_from_files_are_there_after_the_import():
    """A process that loads a compiled graph uses nothing else of normjit."""
    done = run_program("import torch, normjit.torch\n"
                       "print(*(hasattr(torch.ops.normjit, name) for name in ('region', 'formula', 'formula_backward')))")
    assert (done.returncode, done.stdout) == (0, "True True True\n"), done.stderr
