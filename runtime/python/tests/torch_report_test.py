# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""normjit.torch.report(): who computes the backward pass of each norm."""
import normjit.torch
import pytest
import torch
from normjit.torch import probes
from torch_cases import Served, leaf
from torch_modules import InPython, Plain, Scaled


def test_whose():
    model = torch.nn.Sequential(Plain(), torch.nn.LayerNorm(8), normjit.torch.RMSNorm(8), Scaled())
    whose = lambda: [each[2] for each in normjit.torch.report(model)["norms"]]  # noqa: E731
    refused = "torch's: computes neither LayerNorm nor RMSNorm"
    assert whose() == [
        "torch's: patch() would make it normjit's",
        "torch's: enable() would make it normjit's",
        "normjit's",
        refused,
    ]
    normjit.torch.patch(model)
    with normjit.torch.enabled(devices="cpu"):
        assert whose() == ["normjit's, by patch()", "normjit's, by enable()", "normjit's", refused]


def test_knows_what_enable_serves():
    """Layers without a weight, with several dimensions, and of classes derived from torch's."""
    class Mine(torch.nn.LayerNorm):
        pass

    model = torch.nn.Sequential(torch.nn.LayerNorm(8, elementwise_affine=False), torch.nn.LayerNorm((2, 4)), Mine(8),
                                torch.nn.RMSNorm(8, elementwise_affine=False), torch.nn.RMSNorm((2, 4)),
                                normjit.torch.LayerNorm((2, 4)), normjit.torch.RMSNorm(8, elementwise_affine=False))
    whose = lambda: [each[2] for each in normjit.torch.report(model)["norms"]]  # noqa: E731
    others = ["torch's: it has no weight", "torch's: its weight has 2 dimensions; known: 1", "normjit's", "normjit's"]
    assert whose() == ["torch's: enable() would make it normjit's"] * 3 + others
    with normjit.torch.enabled(devices="cpu"):
        assert whose() == ["normjit's, by enable()"] * 3 + others
        with Served(3):
            for norm, shape in zip(model, [(3, 8), (3, 2, 4), (3, 8)]):
                norm(leaf(0, *shape)).sum().backward()


@pytest.mark.parametrize("parametrize", [
    lambda module: torch.nn.utils.parametrize.register_parametrization(module, "weight", torch.nn.Tanh()),
    lambda module: torch.nn.utils.parametrizations.weight_norm(module, dim=None),
])
@pytest.mark.parametrize("make", [InPython, lambda: torch.nn.RMSNorm(8, eps=1e-6), lambda: torch.nn.LayerNorm(8)])
def test_of_norms_that_were_parametrized_before_patch(make, parametrize):
    """A module that was parametrized first is listed, with the order that helps."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), parametrize(make()))
    parametrize(model[0])
    reason = "its weight is parametrized; call patch() before that"
    assert [(each.name, each.norm, each.reason) for each in normjit.torch.found(model)] == [("1", None, reason)]
    ((name, _, whose),) = normjit.torch.report(model)["norms"]
    assert name == "1"
    if not isinstance(model[1], torch.nn.LayerNorm):  # enable() serves it
        assert reason in whose
    with pytest.raises(normjit.InvalidArgument, match="no norm that normjit knows"):
        normjit.torch.patch(model)


class NormWithAnActivation(InPython):
    def __init__(self):
        super().__init__()
        self.activation = torch.nn.SiLU()


class NormOfHeads(InPython):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 8))


class NormInside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = InPython()


def test_what_is_called_a_norm_is_listed():
    model = torch.nn.ModuleList([NormWithAnActivation(), NormOfHeads(), NormInside()])
    reasons = {each.name: each.reason for each in normjit.torch.found(model)}
    assert reasons == {"0": "it has modules inside", "1": "its weight has 2 dimensions; known: 1", "2.inner": None}


def test_of_modules_that_call_layer_norm():
    class Twice(torch.nn.LayerNorm):
        def forward(self, x):
            return 2 * super().forward(x)

    class NormWithoutWeight(torch.nn.Module):  # as OLMo's
        def forward(self, x):
            return torch.nn.functional.layer_norm(x, x.shape[-1:])

    for module, reason in ((Twice(8), "computes neither"), (NormWithoutWeight(), "it has no weight")):
        with normjit.torch.enabled(devices="cpu"), Served(1):
            module(leaf(0, 3, 8)).sum().backward()
            ((_, _, whose),) = normjit.torch.report(module)["norms"]
        assert whose.startswith(f"normjit's where it calls layer_norm, by enable(); else torch's: {reason}")


def test_measures():
    """Times both, and changes neither what is enabled nor a model's gradients."""
    model = torch.nn.Sequential(Plain(), torch.nn.LayerNorm(8), normjit.torch.RMSNorm(8), Scaled())
    with normjit.torch.enabled(devices="cpu"):
        before = normjit.torch.enabled_operators()
        times = [each[3] for each in normjit.torch.report(model, rows=4)["norms"]]
        assert normjit.torch.enabled_operators() == before
    assert times[3] is None and all(time > 0 for time in times[:3])
    assert all(p.grad is None for p in model.parameters())


def test_of_calls_that_had_no_memory_to_be_tried(monkeypatch):
    """Such a call is left to the module. The next call is tried again."""
    module, x = normjit.torch.patch(InPython()), leaf(1, 3, 8)

    def fail(*_):
        raise torch.OutOfMemoryError("out of memory")

    with Served(0), monkeypatch.context() as patched:
        patched.setattr(probes, "definition", fail)
        y = module(x)
        y.sum().backward()
    with Served(1):
        assert torch.equal(module(x), y)
        module(x).sum().backward()
    ((_, _, whose),) = normjit.torch.report(module)["norms"]
    assert "1 call was left to its own forward: there was no memory to try it, for an input of [3, 8]" in whose


@pytest.mark.parametrize("forward", [False, True])
def test_of_methods_kept_by_others(forward):
    """A hook of accelerate replaces a module's forward, and calls the forward that it found, even after unpatch()."""
    module = normjit.torch.patch(InPython(), forward=forward)
    found, x = module.forward, leaf(1, 3, 8)
    module.forward = lambda x: found(x)
    with Served(1 + forward):
        y = module(x)
        y.sum().backward()
    ((_, _, whose),) = normjit.torch.report(module)["norms"]
    assert whose == ("normjit's where it calls the forward of patch(); else torch's: its forward was replaced by another's")
    normjit.torch.unpatch(module)
    with Served(0):
        torch.testing.assert_close(module(x), y)
        module(x).sum().backward()
    ((_, _, whose),) = normjit.torch.report(module)["norms"]
    assert whose == "torch's: its forward was replaced by another's"
