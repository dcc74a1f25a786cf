# SPDX-License-Identifier: Apache-2.0
# needs: torch
"""Calls of one form, which share a plan from the third one on: with other data, other layouts, other threads, and
mistakes."""
import threading

import normjit
import normjit.torch
import pytest
import torch
from normjit.torch import composition, formula_plans
from torch_formula_cases import GATED

ADALN = "norm adaln(x[S,M,N], scale[S,N], r[M,N]) -> y[S,M,N] { y = x * rsqrt(row_mean(x * x) + eps) * (1 + scale) + r }"
RUNS = "norm runs(x[M,N], w[N/R], k[M], c[]) -> y[M,N], m[M] { m = row_mean(x) ; y = (x - m) * w * k * c }"


@pytest.fixture
def runs(monkeypatch):
    """The plans that have been run."""
    found, run = [], formula_plans.Plan.run
    monkeypatch.setattr(formula_plans.Plan, "run", lambda self, tensors: (found.append(self), run(self, tensors))[1])
    monkeypatch.setattr(formula_plans, "_plans", {})
    return found


def gated(dtype=torch.float32, layout=lambda t: t):
    x, z, gamma = torch.randn(2, 5, 24), torch.randn(2, 5, 24), torch.randn(24)
    return GATED, {"x": layout(x.to(dtype)), "z": layout(z.to(dtype)), "gamma": gamma.to(dtype), "eps": 1e-5}


CASES = {
    "f32": gated,
    "bf16": lambda: gated(torch.bfloat16),
    "f64": lambda: gated(torch.float64),
    "strided": lambda: gated(layout=lambda t: torch.cat([t, t], -1)[..., :24]),
    "rows in another order": lambda: gated(layout=lambda t: t.transpose(0, 1).contiguous().transpose(0, 1)),
    "columns apart": lambda: gated(layout=lambda t: torch.stack([t, t], -1)[..., 0]),
    "a weight of another type": lambda: (GATED, {**gated(torch.bfloat16)[1], "gamma": torch.randn(24)}),
    "slices": lambda: (ADALN, {"x": torch.randn(3, 7, 16), "scale": torch.randn(3, 16), "r": torch.randn(7, 16), "eps": 1e-5}),
    "runs": lambda: (RUNS, {"x": torch.randn(9, 12), "w": torch.randn(4), "k": torch.randn(9, 1), "c": torch.randn(())}),
}


def of_torch(text, given):
    """Returns the outputs that are not optional, computed by torch's operators."""
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    norm, numbers = normjit.formula(text), {name: value for name, value in given.items() if name not in tensors}
    wanted = [name for name in norm.outputs if name not in norm.optional]
    return composition.forward(text, list(tensors), list(tensors.values()), numbers, wanted, None)


@pytest.mark.parametrize("case", CASES)
def test_calls_of_one_form(case, runs):
    torch.manual_seed(1)
    for number in range(4):
        text, given = CASES[case]()
        made = normjit.torch.formula(text)(**given)
        for one, other in zip([made] if isinstance(made, torch.Tensor) else made, of_torch(text, given)):
            assert one.dtype == other.dtype and one.shape == other.shape and not one._is_view()
            torch.testing.assert_close(one, other)
        copies = case in ("rows in another order", "columns apart")  # kernels cannot take these
        assert len(runs) == (0 if copies else max(number - 1, 0))


@pytest.mark.parametrize("case", ["f32", "bf16", "strided", "slices", "runs"])
def test_gradients_of_one_form(case, runs):
    torch.manual_seed(2)
    for number in range(4):
        text, given = CASES[case]()
        given = {name: value.requires_grad_() if isinstance(value, torch.Tensor) and name != "r" else value
                 for name, value in given.items()}
        needing = [value for value in given.values() if isinstance(value, torch.Tensor) and value.requires_grad]
        made, wanted = normjit.torch.formula(text)(**given), of_torch(text, given)
        made = [made] if isinstance(made, torch.Tensor) else made
        above = [torch.randn_like(each) for each in made]
        for one, other in zip(torch.autograd.grad(made, needing, above), torch.autograd.grad(wanted, needing, above)):
            assert one.dtype == other.dtype and one.shape == other.shape
            torch.testing.assert_close(one, other, rtol=2e-2 if case == "bf16" else 1e-4, atol=5e-2 if case == "bf16" else 1e-4)
        assert len(runs) == 2 * max(number - 1, 0)


def test_forms_differ_in_what_a_kernel_depends_on(runs):
    norm, (_, given) = normjit.torch.formula(GATED), gated()
    for _ in range(3):
        usual = norm(**given)
    for change in ({"eps": 0.5}, {"gamma": None}, {"x": given["x"][:1], "z": given["z"][:1]}, {"x": given["x"].double()},
                   {"z": given["z"].bfloat16()}):
        changed = {**given, **change}
        torch.testing.assert_close(norm(**changed), of_torch(GATED, {k: v for k, v in changed.items() if v is not None})[0])
    assert len(runs) == 1
    normjit.torch.batch_invariant()
    try:
        norm(**given)
        assert len(runs) == 1
    finally:
        normjit.torch.batch_invariant(False)
    assert torch.equal(norm(**given), usual)
    assert len(runs) == 2


def test_mistakes_are_found_after_calls_without(runs):
    norm, (_, given) = normjit.torch.formula(GATED), gated()
    for _ in range(3):
        norm(**given)
    for change, message in (({"x": given["x"][:1]}, "z: its shape"), ({"gamma": torch.randn(23)}, "gamma: its shape"),
                            ({"eps": "1"}, "eps: is str"), ({"x": None}, "x: is missing"), ({"other": 1}, "nothing of this name"),
                            ({"z": given["z"].to_sparse()}, "z: "), ({"z": given["z"].to("meta")}, "z: ")):
        with pytest.raises(normjit.InvalidArgument, match=message):
            norm(**{**given, **change})
    assert len(runs) == 1


def test_what_requires_a_gradient_has_one_after_calls_without(runs):
    norm, (_, given) = normjit.torch.formula(GATED), gated()
    for _ in range(3):
        assert not norm(**given).requires_grad
    assert norm(**{**given, "gamma": given["gamma"].clone().requires_grad_()}).requires_grad
    with torch.no_grad():
        assert not norm(**{**given, "gamma": given["gamma"].clone().requires_grad_()}).requires_grad


def test_transforms_see_operators_after_calls_of_the_same_form():
    norm, (_, given) = normjit.torch.formula(GATED), gated()
    for _ in range(3):
        norm(**given)

    def loss(x):
        return norm(**{**given, "x": x}).square().sum()

    by_kernels = torch.autograd.grad(loss(x := given["x"].clone().requires_grad_()), x)[0]
    torch.testing.assert_close(torch.func.grad(loss)(given["x"]), by_kernels)
    each = {**given, "x": given["x"][None].expand(2, -1, -1, -1)}
    mapped = torch.vmap(lambda x: norm(**{**given, "x": x}))(each["x"])
    torch.testing.assert_close(mapped[1], norm(**given))


def test_negated_views_are_not_taken_as_they_are(runs):
    norm, (_, given) = normjit.torch.formula(GATED), gated()
    for _ in range(3):
        norm(**given)
    x = torch.complex(given["x"], given["x"]).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(norm(**{**given, "x": x}), norm(**{**given, "x": -given["x"]}))


def test_zeros_without_memory_are_not_taken_as_they_are(runs):
    """Torch represents tangents and gradients of zeros by tensors whose address is null."""
    norm, (_, given) = normjit.torch.formula(GATED), gated()
    leaf = given["x"].clone().requires_grad_()
    for _ in range(3):
        y = norm(**{**given, "x": leaf})
        torch.autograd.grad(y, leaf, torch.ones_like(y))
    zeros = torch._efficientzerotensor(y.shape, dtype=y.dtype)
    assert not norm(**{**given, "x": zeros}).any()
    assert not torch.autograd.grad(norm(**{**given, "x": leaf}), leaf, zeros)[0].any()


def test_threads_share_plans():
    norm, failures = normjit.torch.formula(GATED), []

    def calls(seed):
        torch.manual_seed(seed)
        try:
            for _ in range(30):
                text, given = gated()
                torch.testing.assert_close(norm(**given), of_torch(text, given)[0])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_many_forms_do_not_stay(monkeypatch):
    monkeypatch.setattr(formula_plans, "MOST", 8)
    monkeypatch.setattr(formula_plans, "_plans", {})
    norm = normjit.torch.formula(GATED)
    for rows in range(1, 30):
        x = torch.randn(rows, 8)
        norm(x=x, z=x, eps=1e-5)
    assert len(formula_plans._plans) <= 8
