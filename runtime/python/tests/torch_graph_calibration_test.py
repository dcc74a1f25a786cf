# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Which of Inductor's kernels are measured for a graph, and what they reach."""
import normjit.torch
import pytest
import torch
from graph_models import MODELS, alone, made  # noqa: F401
from normjit.torch import graph_calibration, graph_times
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

torch._inductor.config.compile_threads = 1


def needs_of(model, *inputs):
    """Returns the types and kinds of the shares that torch.compile's graph of a model needs."""
    found = []

    def seen(module, given):
        found.extend((each.dtype, each.kind) for each in graph_calibration.needs_of(module, given))
        return module

    torch.compile(model, backend=seen)(*inputs)
    return found


def test_only_shares_that_decide_about_a_graph_are_measured(monkeypatch):
    monkeypatch.setitem(graph_calibration.LEAST_ELEMENTS, "cpu", 1024)
    norm, x = torch.nn.LayerNorm(64), torch.randn(16, 64)

    def turned(x):
        first, second = norm(x).chunk(2, -1)
        return norm(x) * x.cos() + torch.cat([-second, first], -1) * x.sin()

    assert needs_of(norm, x[:8]) == []
    assert needs_of(norm, x) == [(torch.float32, "rows"), (torch.float32, "columns")]
    with torch.no_grad():
        assert needs_of(norm.bfloat16(), x.bfloat16()) == [(torch.bfloat16, "rows")]
        with torch.autocast("cpu", torch.bfloat16):
            linear = torch.nn.Linear(64, 64)
            assert needs_of(linear, x) == [(torch.float32, "rows"), (torch.bfloat16, "rows")]
        kinds = ["rows", "rotated", "rotated by angles"]
        assert needs_of(turned, x.bfloat16()) == [(torch.bfloat16, kind) for kind in kinds]


def test_what_is_measured_on_a_gpu(monkeypatch):
    """Kernels that are as fast as a copy are not measured; torch's functions stand for those that compute angles."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(4096, 1024, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        graph = make_fx(lambda x: torch.cat([x.cos(), x.sin()], -1), tracing_mode="fake")(x)
    for node in graph.graph.nodes:
        node.meta["example_value"] = node.meta.get("val")
        if node.op == "call_function":
            node.target = {"aten.cat.default": torch.cat, "aten.cos.default": torch.cos}.get(str(node.target), node.target)
    needs = graph_calibration.needs_of(graph, [x])
    assert [(each.device.type, each.dtype, each.kind) for each in needs] == [
        ("cuda", torch.bfloat16, kind) for kind in ("columns", "rotated by angles")]

    cpu = torch.device("cpu")
    monkeypatch.setattr(graph_times, "seconds", lambda call, device: 2e-3 if call().shape == (1 << 22,) else None)
    monkeypatch.setattr(graph_times, "bandwidth", lambda device, moved: 1e10)
    assert graph_calibration._share_by_angles(cpu, torch.float32) == pytest.approx(8 * (1 << 22) / 4e-3 / 1e10)


def test_shares_of_the_bandwidth_are_measured_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(graph_calibration, "_measured", {})
    monkeypatch.setitem(graph_calibration.SHAPES, "cpu", ((64, 64),))
    monkeypatch.setitem(graph_calibration.LEAST_ELEMENTS, "cpu", 1)
    graph_calibration._read.cache_clear()
    cpu = torch.device("cpu")
    assert graph_calibration.share_of(cpu, torch.float32, "columns") == 1
    before = normjit.torch.GraphPass().uuid()
    model, x = made(MODELS["gated"], torch.float32)
    torch.compile(model, backend="normjit")(x)  # measures while Dynamo traces
    share = graph_calibration.share_of(cpu, torch.float32, "columns")
    assert 0 < share <= 1 and set(graph_calibration._measured) == {graph_calibration._key(cpu, torch.float32)}
    assert normjit.torch.GraphPass().uuid() != before
    monkeypatch.setattr(graph_calibration, "_measured", {})
    monkeypatch.setattr(graph_calibration, "_share", None)
    graph_calibration._read.cache_clear()
    needs = [graph_calibration.Need(cpu, torch.float32, kind) for kind in ("rows", "columns")]
    assert graph_calibration.shares_of(needs)[needs[1]] == share  # from the file
    graph_calibration._read.cache_clear()
