# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.compile(backend="normjit"): rotations of rows, and permutations of dimensions, before and behind a norm."""
import normjit.torch
import pytest
import torch
from graph_models import COLS, MODELS, Rewritten, alone, assert_near, half_rotated, made, random_heads, results  # noqa: F401
from normjit.torch import graph_costs
from rounds import rounds

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))

torch._inductor.config.compile_threads = 1


def test_rotations_are_in_the_kernel_of_their_norm():
    model, x = made(MODELS["rotary"], torch.float32)
    backend = Rewritten()
    with torch.no_grad():
        y = torch.compile(model, backend=backend)(x)
        assert_near([y], [model(x)], 1e-6)
    (region,) = normjit.torch.graph_report()
    assert region["taken"] and "rotate_half(" in region["formula"] and "row_mean(" in region["formula"]
    assert not {"aten.neg.default", "aten.slice.Tensor", "aten.roll.default"}.intersection(backend.targets())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_rotations_behind_a_permutation_are_in_the_kernel_of_their_norm(batch, dynamic):
    model, _ = made(MODELS["attended"])
    x = torch.randn(batch, 40, COLS, dtype=torch.float64)
    backend = Rewritten()
    assert_near(results(torch.compile(model, backend=backend, dynamic=dynamic), model, x), results(model, model, x), 1e-10)
    report = normjit.torch.graph_report()
    assert len(report) == 2 and all("rotate_half(" in each["formula"] for each in report)
    assert not {"aten.neg.default", "aten.slice.Tensor", "aten.slice_scatter.default"}.intersection(backend.targets())


def test_permutations_and_rotations_that_no_kernel_has_stay_where_they_are(monkeypatch):
    def function(m, x):
        return MODELS["attended"](m, m.layer_norm(x)).sum(1)

    model, x = made(function)
    backend = Rewritten("none")
    wanted = results(model, model, x)
    assert_near(results(torch.compile(model, backend=backend), model, x), wanted, 1e-12)
    plain = [each.split(".")[1] for each in backend.targets() if "." in each]
    torch._dynamo.reset()
    backend = Rewritten("faster")
    monkeypatch.setattr(graph_costs, "CLEARLY", 1e9)
    monkeypatch.setattr(graph_costs.Machine, "normjit_seconds", lambda _, __, by: 1e30 if "rotate_half" in by.spec else 0.0)
    assert_near(results(torch.compile(model, backend=backend), model, x), wanted, 1e-12)
    assert any(each["taken"] for each in normjit.torch.graph_report())
    left = [each.split(".")[1] for each in backend.targets() if "." in each]
    for name in ("clone", "slice", "neg", "cat", "slice_scatter", "cos", "sin", "pow"):  # permutations are views
        assert left.count(name) <= plain.count(name)
    assert "roll" not in left and plain.count("slice") == left.count("slice")


@pytest.mark.parametrize("dynamic", [False, True])
def test_rotations_that_no_kernel_has_stay_as_they_are(dynamic):
    def function(m, x):
        return half_rotated(m.linear(x)) + half_rotated(x.sin()).sum((0, 1)) + m.linear(m.layer_norm(x))

    model, x = made(function)
    backend = Rewritten("none")
    wanted = results(model, model, x)
    assert_near(results(torch.compile(model, backend=backend, dynamic=dynamic), model, x), wanted, 1e-12)
    plain = backend.targets()
    torch._dynamo.reset()
    backend = Rewritten()
    assert_near(results(torch.compile(model, backend=backend, dynamic=dynamic), model, x), wanted, 1e-12)
    assert len(normjit.torch.graph_report()) == 2 and all(each["taken"] for each in normjit.torch.graph_report())
    assert "aten.roll.default" not in backend.targets()
    assert 0 < backend.targets().count("aten.slice_scatter.default") <= plain.count("aten.slice_scatter.default")


@pytest.mark.parametrize("seed", range(rounds(8)))
def test_random_permutations_and_rotations(seed, monkeypatch):
    """Also where normjit's kernels are taken for some regions, and the others are restored."""
    monkeypatch.setattr(graph_costs, "CLEARLY", 1e9)
    monkeypatch.setattr(graph_costs.Machine, "normjit_seconds", lambda _, __, by: 1e30 * (len(by.spec) % 2))
    torch.manual_seed(seed)
    function, x, weight = random_heads(seed), torch.randn(2, 5, 3, COLS, dtype=torch.float64), torch.rand(COLS, dtype=torch.float64)
    found = []
    for call in (function, *(torch.compile(function, backend=Rewritten(take), dynamic=seed % 2 == 1) for take in ("none", "all", "faster"))):
        given = x.clone().requires_grad_(), weight.clone().requires_grad_()
        results = call(*given)
        sum((each * torch.linspace(-1, 1, each.numel(), dtype=x.dtype).view(each.shape)).sum() for each in results).backward()
        found.append([*results, given[0].grad, torch.zeros(1) if given[1].grad is None else given[1].grad])
    if TORCH >= (2, 11):  # 2.10 computes something else than eager mode, with its own kernels as well
        assert_near(found[1], found[0], 1e-9)
    assert_near(found[2], found[1], 1e-9)
    assert_near(found[3], found[1], 1e-9)
    assert not any("Error" in each["why"] for each in normjit.torch.graph_report())
