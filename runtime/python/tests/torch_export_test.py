# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.export of programs with normjit's norms: they compute what the module does, and so do their gradients."""
import warnings

import normjit.torch
import pytest
import torch
from torch.onnx._internal.exporter import _flags
from torch_cases import leaf
from torch_gates import GateThenNorm, NormThenGate
from torch_modules import InPython, Plain


class Functions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(leaf(1, 8).detach())

    def forward(self, x):
        y, h = normjit.torch.layer_norm(x, self.weight, residual=x.sin())
        return normjit.torch.rms_norm(y, self.weight) * h


class WithGate(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.norm = normjit.torch.patch(kind())

    def forward(self, x):
        return self.norm(x, x.sin())


def gradients(module, x):
    return torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("make", [
    Functions, lambda: normjit.torch.patch(InPython()), lambda: normjit.torch.patch(Plain()), lambda: WithGate(NormThenGate),
    lambda: WithGate(GateThenNorm), lambda: normjit.torch.patch(InPython(), forward=True)])
def test_exported_programs_have_gradients(make, strict):
    module = make()
    x = leaf(2, 3, 5, next(module.parameters()).shape[-1])
    exported = torch.export.export(module, (x.detach(),), strict=strict).module()
    torch.testing.assert_close(exported(x), module(x))
    for got, wanted in zip(gradients(exported, x), gradients(module, x)):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@normjit.torch.rowwise
def scaled(x, weight):
    return torch.nn.functional.softmax(x, -1) * weight


class Called(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("function, of_samples", [
    (scaled, False), (normjit.torch.rms_norm, False), (normjit.torch.rms_norm, True),
    (lambda x, weight: normjit.torch.layer_norm(x, weight, weight.cos()), True)])
def test_a_number_of_samples_that_is_a_symbol(function, of_samples, strict):
    """It may be any number, the number of columns too."""
    samples = torch.export.Dim("samples", min=2, max=64)
    drawn = lambda count: (torch.randn(count, 5, 8), torch.randn(*[count] * of_samples, 8))  # noqa: E731
    shapes = (({0: samples}, {0: samples} if of_samples else None),)
    exported = torch.export.export(Called(function), drawn(3), dynamic_shapes=shapes, strict=strict).module()
    for count in (2, 8, 13):
        given = drawn(count)
        torch.testing.assert_close(exported(*given), function(*given))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("function", [scaled, lambda x, weight: normjit.torch.formula("layernorm")(x=x, gamma=weight)])
def test_programs_for_onnx_consist_of_torchs_operators(function, strict):
    """They run without normjit."""
    x, weight = torch.randn(3, 8), torch.randn(8)
    exported = _flags.set_onnx_exporting_flag(torch.export.export)(Called(function), (x, weight), strict=strict)
    assert not [node for node in exported.graph.nodes if "normjit" in str(node.target)]
    torch.testing.assert_close(exported.module()(x, weight), function(x, weight))


@pytest.mark.parametrize("function", [
    scaled, lambda x, weight: normjit.torch.formula("layernorm")(x=x, gamma=weight), normjit.torch.layer_norm,
    lambda x, weight: normjit.torch.layer_norm(x, weight, residual=x.sin()), lambda x, weight: normjit.torch.rms_norm(x)])
def test_traced_for_any_number_of_rows(function):
    x, weight = torch.randn(3, 8), torch.randn(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(function, (x, weight))
    for given in (x, torch.randn(2, 5, 8)[0]):
        torch.testing.assert_close(traced(given, weight), function(given, weight))


def test_traced_without_a_weight_for_any_number_of_columns():
    traced = torch.jit.trace(normjit.torch.layer_norm, torch.randn(3, 8))
    x = torch.randn(3, 9)
    torch.testing.assert_close(traced(x), normjit.torch.layer_norm(x))


@pytest.mark.parametrize("make, advice", [
    (normjit.torch.LayerNorm, "torch.nn.LayerNorm, which has the same"), (normjit.torch.RMSNorm, "torch.nn.RMSNorm"),
    (lambda cols: normjit.torch.patch(Plain()), r"call unpatch\(model\) first, or use torch.jit.trace")])
def test_script_is_refused(make, advice):
    model = torch.nn.Sequential(make(8))
    with pytest.raises(normjit.InvalidArgument, match=f"torch.jit.script: .*{advice}"):
        torch.jit.script(model)
    torch.testing.assert_close(torch.jit.trace(model, torch.ones(3, 8))(torch.ones(3, 8)), model(torch.ones(3, 8)))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("shapes", [{"x": {0: torch.export.Dim.DYNAMIC}}, ({0: torch.export.Dim.DYNAMIC},)])
def test_a_patched_norm_has_the_names_of_its_arguments(shapes, strict):
    norm, x = normjit.torch.patch(Plain()), torch.randn(5, 8)
    exported = torch.export.export(norm, (torch.randn(3, 8),), dynamic_shapes=shapes, strict=strict).module()
    traced = torch.jit.trace(norm, example_kwarg_inputs={"x": torch.randn(3, 8)})
    for got in (exported(x), traced(x=x)):
        torch.testing.assert_close(got, norm(x))
