# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Gradients of weights that are added to main_grad."""
import normjit.torch
import pytest
import torch
from torch_cases import NORMS, Served, assert_close, case, leaf, reference


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_main_grad(norm, dtype):
    """Gradients of weights are added to f32 tensors over several backward passes. Nothing else is written."""
    x, w, b, dy = case(64, 70, dtype=dtype)
    parameters = (w, b) if norm == "layernorm" else (w,)
    started = [leaf(9 + i, 70).detach() for i in range(len(parameters))]
    for parameter, start in zip(parameters, started):
        parameter.main_grad = start.clone()
    for _ in range(3):
        y = NORMS[norm](x, w, b, main_grad=True)
        with Served(1):
            y.backward(dy)
    right = reference(x, w, b, dy, norm=norm)[1:]
    for parameter, start, wanted in zip(parameters, started, right):
        assert parameter.grad is None
        assert_close(parameter.main_grad, start.double() + 3 * wanted)
    assert_close(x.grad.float(), (3 * reference(x, w, b, dy, norm=norm)[0]).to(dtype).double(), stored=dtype)


def test_main_grad_of_megatron():
    """Megatron's hooks run for a parameter that gets a gradient, and a mark tells them not to add it."""
    module = normjit.torch.LayerNorm(16, main_grad=True)
    added = []
    for p in module.parameters():
        p.main_grad, p.grad_added_to_main_grad, p.zero_out_wgrad = torch.zeros(16), False, p is module.weight
        p.register_post_accumulate_grad_hook(lambda p: added.append(p.grad_added_to_main_grad))
    x, _, _, dy = case(5, 16)
    module(x).backward(dy)
    assert added == [True, True] and not module.weight.grad.any()
    assert_close(module.bias.main_grad, dy.double().sum(0))


def test_main_grad_of_rms_norm():
    module = normjit.torch.RMSNorm(16, 1e-5, main_grad=True)
    with pytest.raises(normjit.InvalidArgument, match="main_grad: weight has no attribute main_grad, or it is None"):
        module(torch.ones(2, 16))
    module.weight.main_grad = torch.zeros(16)[::1]
    x, _, _, dy = case(5, 16)
    module(x).backward(dy)
    assert_close(module.weight.main_grad, reference(x, module.weight, None, dy, norm="rmsnorm")[1])
    y = module(x)
    for wrong in (torch.zeros(32)[::2], torch.zeros(15), torch.zeros(16, device="meta"), [0.0] * 16):
        module.weight.main_grad = wrong
        with pytest.raises(normjit.InvalidArgument, match="main_grad: that of weight "):
            module(x)
    module.weight.main_grad = torch.zeros(32)[::2]  # between the passes
    with pytest.raises(RuntimeError, match="dweight: is not contiguous; must be, because a gradient is added to it"):
        y.backward(dy)
    module.weight.requires_grad_(False)  # it then needs no gradient
    module(x).backward(dy)


@pytest.mark.parametrize("dtype, residual_dtype, allowed", [
    (torch.float32, None, "float32, bfloat16, float16"), (torch.bfloat16, torch.float32, "float32, bfloat16, float16"),
    (torch.float64, None, "float64"), (torch.float32, torch.float64, "float64"),
])
def test_types_of_main_grad(dtype, residual_dtype, allowed):
    """A main_grad that the backward pass cannot add to is refused before it."""
    x, w, b, dy = case(5, 16, dtype=dtype, weight_dtype=torch.float32)
    residual = None if residual_dtype is None else leaf(7, 5, 16, dtype=residual_dtype)
    for each in ("float32", "bfloat16", "float16", "float64", "int32"):
        w.main_grad, b.main_grad = (torch.zeros(16, dtype=getattr(torch, name)) for name in (allowed.split(",")[0], each))
        if each in allowed.split(", "):
            y = normjit.torch.layer_norm(x, w, b, residual=residual, main_grad=True)
            y = y if residual is None else y[0]
            y.backward(dy.to(y.dtype))
            assert_close(b.main_grad, dy.double().sum(0))
        else:
            message = f"main_grad: that of bias is torch.{each}; allowed for the gradients of this x: torch.{allowed[:5]}"
            with pytest.raises(normjit.InvalidArgument, match=message):
                normjit.torch.layer_norm(x, w, b, residual=residual, main_grad=True)


def test_main_grad_of_frozen_weights():
    x, w, b, dy = case(5, 16)
    b.main_grad = torch.zeros(16)
    normjit.torch.layer_norm(x, w.requires_grad_(False), b, main_grad=True).backward(dy)
    assert_close(b.main_grad, dy.double().sum(0))


@pytest.mark.parametrize("norm", NORMS)
def test_main_grad_of_f64_weights(norm):
    x, w, b, dy = case(6, 70, weight_dtype=torch.float64)
    w.main_grad, b.main_grad = torch.ones(70), torch.ones(70)
    with Served(1):
        NORMS[norm](x, w, b, main_grad=True).backward(dy)
    wanted = reference(x, w, b, dy, norm=norm)
    assert_close(x.grad, wanted[0])
    assert_close(w.main_grad - 1, wanted[1])


@pytest.mark.parametrize("norm", NORMS)
def test_main_grad_that_is_taken_away_between_the_passes(norm):
    x, w, b, dy = case(5, 16)
    for gone in ("weight", "bias") if norm == "layernorm" else ("weight",):
        w.main_grad, b.main_grad = torch.zeros(16), torch.zeros(16)
        y = NORMS[norm](x, w, b, main_grad=True)
        {"weight": w, "bias": b}[gone].main_grad = None
        with pytest.raises(normjit.InvalidArgument, match=f"main_grad: {gone} has no attribute main_grad, or it is None"):
            y.backward(dy)
    assert x.grad is None


@pytest.mark.parametrize("norm", NORMS)
def test_main_grad_has_no_derivatives(norm):
    x, w, b, dy = case(5, 16)
    w.main_grad, b.main_grad = torch.zeros(16), torch.zeros(16)
    with pytest.raises(normjit.InvalidArgument, match="main_grad: .*create_graph=True needs main_grad=False"):
        torch.autograd.grad(NORMS[norm](x, w, b, main_grad=True), (x, w), dy, create_graph=True)
    frozen = [t.requires_grad_(False) for t in (w, b)]
    assert torch.autograd.grad(NORMS[norm](x, *frozen, main_grad=True), x, dy, create_graph=True)[0].requires_grad
