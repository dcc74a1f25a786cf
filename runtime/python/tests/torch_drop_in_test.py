# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""LayerNorm and RMSNorm as replacements for torch's modules with these names."""
import copy
import inspect
import pickle
import re

import normjit.torch
import pytest
import torch
from torch_cases import Served

PAIRS = [(normjit.torch.LayerNorm, torch.nn.LayerNorm), (normjit.torch.RMSNorm, torch.nn.RMSNorm)]
BOTH = pytest.mark.parametrize("ours, torchs", PAIRS, ids=["LayerNorm", "RMSNorm"])
SHAPES = pytest.mark.parametrize("shape", [16, (16,), [16], torch.Size([16]), (4, 16), torch.Size([3, 4, 16]), (1, 7)])


def pair(ours, torchs, *arguments, **named):
    """Returns torch's module and normjit's, with the same random weights."""
    ours, torchs = ours(*arguments, **named), torchs(*arguments, **named)
    for parameter in torchs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(torchs.state_dict())
    return ours, torchs


@BOTH
def test_arguments_are_torchs(ours, torchs):
    """Arguments have torch's names, order and defaults; normjit's own are keyword-only."""
    own = list(inspect.signature(ours.__init__).parameters.values())
    of_torch = list(inspect.signature(torchs.__init__).parameters.values())
    assert [(p.name, p.default, p.kind) for p in own[: len(of_torch)]] == [(p.name, p.default, p.kind) for p in of_torch]
    assert all(p.kind is p.KEYWORD_ONLY for p in own[len(of_torch):])
    first = [next(iter(list(inspect.signature(each.forward).parameters)[1:])) for each in (ours, torchs)]
    assert first[0] == first[1] and issubclass(ours, torchs)


@BOTH
@SHAPES
@pytest.mark.parametrize("affine", [True, False])
def test_computes_what_torchs_does(ours, torchs, shape, affine):
    ours, torchs = pair(ours, torchs, shape, None if torchs is torch.nn.RMSNorm else 1e-5, affine)
    assert repr(ours) == repr(torchs)
    x = torch.randn(2, 3, 4, 16, requires_grad=True) if 7 not in torchs.normalized_shape else torch.randn(5, 1, 7)
    x = x.detach().requires_grad_()
    dy = torch.randn_like(x)
    got, wanted = (torch.autograd.grad(m(x), [x, *m.parameters()], dy) for m in (ours, torchs))
    torch.testing.assert_close(ours(x), torchs(x))
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b)
    with Served(1), torch.no_grad():
        ours(x)


@BOTH
def test_residuals_of_several_dimensions(ours, torchs):
    ours, torchs = pair(ours, torchs, (4, 16))
    x, residual = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 4, 16)
    y, h = ours(x, residual=residual)
    torch.testing.assert_close(h, x + residual)
    torch.testing.assert_close(y, torchs(x + residual))


def test_scale_and_shift_of_several_dimensions():
    module = normjit.torch.LayerNorm((4, 16), elementwise_affine=False)
    x, scale, shift = torch.randn(2, 3, 4, 16), torch.randn(2, 4, 16), torch.randn(2, 4, 16)
    xhat = torch.nn.functional.layer_norm(x, (4, 16))
    torch.testing.assert_close(module(x, scale=scale, shift=shift), xhat * (scale[:, None] + 1) + shift[:, None])


def test_layer_norm_without_bias():
    ours, torchs = pair(*PAIRS[0], 16, bias=False)
    x = torch.randn(3, 16)
    assert ours.bias is None and list(ours.state_dict()) == ["weight"] and repr(ours) == repr(torchs)
    torch.testing.assert_close(ours(x), torchs(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_eps_of_none(dtype):
    """Inputs are so small that eps matters."""
    ours, torchs = pair(*PAIRS[1], 64, dtype=dtype)
    x = torch.randn(3, 64, dtype=dtype) * (1e-9 if dtype == torch.float64 else 1e-4)
    torch.testing.assert_close(ours(x), torchs(x))


@BOTH
def test_device_and_dtype(ours, torchs):
    module = ours(16, device="meta", dtype=torch.bfloat16)
    assert module.weight.is_meta and module.weight.dtype == torch.bfloat16
    module.to_empty(device="cpu").reset_parameters()
    assert module.weight.tolist() == [1.0] * 16
    with torch.device("meta"):
        assert ours(16).weight.is_meta


@BOTH
def test_copies(ours, torchs):
    """Copies of new modules, and of modules whose class was changed, compute the same."""
    made, other = pair(ours, torchs, 16)
    other.__class__ = ours
    x = torch.randn(3, 16)
    for module in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), other):
        torch.testing.assert_close(module(x), made(x))


def test_own_options():
    module = normjit.torch.RMSNorm(16, weight_offset=1.0)
    assert module.weight.tolist() == [0.0] * 16 and "weight_offset=1.0" in repr(module)
    module.weight.data.normal_()
    module.reset_parameters()
    assert module.weight.tolist() == [0.0] * 16
    assert "main_grad=True" in repr(normjit.torch.LayerNorm(16, main_grad=True))


@BOTH
def test_compiled_with_several_dimensions(ours, torchs):
    ours, torchs = pair(ours, torchs, (4, 16))
    x = torch.randn(3, 4, 16)
    torch.testing.assert_close(torch.compile(ours, backend="aot_eager", fullgraph=True)(x), torchs(x))


@BOTH
@pytest.mark.parametrize("named, message", [
    ({"normalized_shape": ()}, "normalized_shape: (); must be an int of at least 1, or one or several of them"),
    ({"normalized_shape": 0}, "normalized_shape: 0; must be"), ({"normalized_shape": (4, -1)}, "normalized_shape: (4, -1); must"),
    ({"normalized_shape": 4.0}, "normalized_shape: 4.0; must be"), ({"normalized_shape": "16"}, "normalized_shape: '16'; must"),
    ({"normalized_shape": None}, "normalized_shape: None; must be"),
    ({"eps": -1.0}, "eps: -1.0; must be a finite number and at least 0"), ({"eps": "small"}, "eps: 'small'; must be a finite number"),
    ({"dtype": torch.int32}, "dtype: torch.int32; allowed: None, torch.float32, torch.bfloat16, torch.float16, torch.float64"),
    ({"dtype": "f32"}, "dtype: 'f32'; allowed: None"),
    ({"device": "tpux"}, "device: 'tpux'; must be one of torch's: "), ({"device": 1.5}, "device: 1.5; must be one of torch's: "),
    ({"normalized_shape": (4, 16), "main_grad": True}, "main_grad: normalized_shape is (4, 16); must be one dimension"),
])
def test_bad_arguments(ours, torchs, named, message):
    with pytest.raises(normjit.InvalidArgument, match="^" + re.escape(message)):
        ours(**{"normalized_shape": 16, **named})


@pytest.mark.parametrize("named, message", [
    ({"weight_offset": float("nan")}, "weight_offset: nan; must be a finite number"),
    ({"weight_offset": 1.0, "elementwise_affine": False}, "weight_offset: 1.0; must be 0 without a weight"),
])
def test_bad_weight_offset(named, message):
    with pytest.raises(normjit.InvalidArgument, match="^" + re.escape(message)):
        normjit.torch.RMSNorm(16, **named)


@BOTH
@pytest.mark.parametrize("affine", [True, False])
def test_inputs_of_another_shape(ours, torchs, affine):
    for shape in ((16,), (4, 16)):
        for x in (torch.ones(3, 4, 8), torch.ones(8), torch.ones(())):
            message = rf"^(x|input): its shape is .*; must end in {re.escape(str(shape))}"
            with pytest.raises(normjit.InvalidArgument, match=message):
                ours(shape, elementwise_affine=affine)(x)
    with pytest.raises(normjit.InvalidArgument, match="^x: is list; must be a tensor"):
        ours((4, 16))([1.0])
