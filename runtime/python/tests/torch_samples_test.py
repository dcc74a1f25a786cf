# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""normjit.torch.layer_norm and rms_norm with slices: weights with a row for each sample, and views of heads."""
import normjit.torch
import pytest
import torch
from torch_cases import DEVICES, NORMS, Served, assert_close, leaf


def in_double(norm, tensors, dy, dh, weight_offset=0.0):
    """Returns y and the gradients of tensors (x, weight, bias, residual) by the formula in double precision."""
    x, w, b, r = (None if t is None else t.detach().double().requires_grad_() for t in tensors)
    h = x if r is None else x + r
    y = normjit.torch.functional.formula(norm, h, w, b if norm == "layernorm" else None, 1e-5, weight_offset)
    wanted = [t for t in (x, w, b if norm == "layernorm" else None, r) if t is not None]
    of = [(y, dy.double())] + ([] if r is None else [(h, dh.double())])
    return y.detach(), torch.autograd.grad([t for t, _ in of], wanted, [g for _, g in of])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype, weight_dtype", [(torch.float32, None), (torch.bfloat16, torch.float32),
                                                 (torch.float64, None)])
@pytest.mark.parametrize("shape, slices", [((3, 5, 70), 1), ((2, 3, 4, 16), 2), ((6, 33), 1), ((1, 4, 8), 1), ((3, 0, 8), 1),
                                           ((0, 4, 8), 1)])
def test_weights_of_samples(norm, dtype, weight_dtype, shape, slices, device):
    """Scale and shift with a row for each sample, as views of one tensor, and their gradients."""
    weights = leaf(1, *shape[:slices], 2 * shape[-1], dtype=weight_dtype or dtype, device=device)
    x, dy = leaf(2, *shape, dtype=dtype, device=device), leaf(3, *shape, dtype=dtype, device=device).detach()
    w, b = (t.detach().requires_grad_() for t in weights.chunk(2, dim=-1))
    with Served(2):
        y = NORMS[norm](x, w, b, weight_offset=1.0)
        y.backward(dy)
    wanted, gradients = in_double(norm, (x, w, b, None), dy, None, 1.0)
    assert_close(y.detach(), wanted)
    for what, tensor, right in zip(("dx", "dweight", "dbias"), (x, w, b), gradients):
        assert_close(tensor.grad, right, what)


def test_a_weight_of_samples_beside_one_of_all():
    x, dy = leaf(1, 3, 5, 16), leaf(2, 3, 5, 16).detach()
    for w, b in ((leaf(3, 3, 16), leaf(4, 16)), (leaf(3, 16), leaf(4, 3, 16)), (leaf(3, 3, 16), None)):
        x.grad = None
        with Served(2):
            normjit.torch.layer_norm(x, w, b).backward(dy)
        gradients = in_double("layernorm", (x, w, b, None), dy, None)[1]
        for tensor, right in zip([t for t in (x, w, b) if t is not None], gradients):
            assert tensor.grad.shape == tensor.shape
            assert_close(tensor.grad, right)


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_of_samples_and_of_tokens(compiled):
    norm = torch.compile(normjit.torch.layer_norm) if compiled else normjit.torch.layer_norm
    x, dy = leaf(1, 3, 5, 4, 16), leaf(2, 3, 5, 4, 16).detach()
    for w, b in ((leaf(3, 3, 16), leaf(4, 3, 5, 16)), (leaf(3, 3, 5, 4, 16), leaf(4, 3, 16))):
        x.grad = None
        norm(x, w, b).backward(dy)
        gradients = in_double("layernorm", (x, w, b, None), dy, None)[1]
        for tensor, right in zip((x, w, b), gradients):
            assert tensor.grad.shape == tensor.shape
            assert_close(tensor.grad, right)


def test_modulation_of_a_module():
    module = normjit.torch.LayerNorm(16, elementwise_affine=False)
    x, residual, scale, shift = leaf(1, 3, 5, 16), leaf(2, 3, 5, 16), leaf(3, 3, 16), leaf(4, 3, 16)
    dy, dh = leaf(5, 3, 5, 16).detach(), leaf(6, 3, 5, 16).detach()
    y, h = module(x, residual=residual, scale=scale, shift=shift)
    torch.autograd.backward((y, h), (dy, dh))
    wanted, gradients = in_double("layernorm", (x, scale, shift, residual), dy, dh, 1.0)
    assert_close(y.detach(), wanted)
    for tensor, right in zip((x, scale, shift, residual), gradients):
        assert_close(tensor.grad, right)
    torch.testing.assert_close(module(x), torch.nn.functional.layer_norm(x, (16,)))
    with pytest.raises(normjit.InvalidArgument, match="the module has a weight; make it with elementwise_affine=False"):
        normjit.torch.LayerNorm(16)(x, scale=scale)
    with pytest.raises(normjit.InvalidArgument, match="shift: is given without a scale"):
        module(x, shift=shift)
    message = r"weight: its shape is \(5, 16\); must be \(16,\), or that with the first dimensions of x, \(3, 5, 16\)"
    with pytest.raises(normjit.InvalidArgument, match=message):
        normjit.torch.layer_norm(x, leaf(1, 5, 16))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_of_packed_views(norm, dtype, device):
    """Norms of queries and keys that are views of one product: [B,T,H,D] with three strides. Nothing is copied."""
    qkv = leaf(1, 2, 5, 3 * 4 * 16, dtype=dtype, device=device)
    w, b = leaf(2, 16, dtype=dtype, device=device), leaf(3, 16, dtype=dtype, device=device)
    for start in (0, 64):
        q = qkv[..., start : start + 64].detach().view(2, 5, 4, 16).requires_grad_()
        assert not q.is_contiguous()
        dy = leaf(4, 2, 5, 4, 16, dtype=dtype, device=device).detach()
        w.grad = b.grad = None
        with torch.profiler.profile() as profile, Served(2):
            y = NORMS[norm](q, w, b)
            y.backward(dy)
        assert not {"aten::copy_", "aten::clone"} & {event.key for event in profile.key_averages()}
        wanted, gradients = in_double(norm, (q, w, b, None), dy, None)
        assert_close(y.detach(), wanted)
        for tensor, right in zip((q, w, b), gradients):
            assert_close(tensor.grad, right)


def test_weights_of_samples_compiled():
    x, w, b, dy = leaf(1, 3, 5, 16), leaf(2, 3, 16), leaf(3, 3, 16), leaf(4, 3, 5, 16).detach()
    compiled = torch.compile(lambda *t: normjit.torch.layer_norm(*t, weight_offset=1.0), backend="aot_eager",
                             fullgraph=True, dynamic=True)
    with Served(1):
        compiled(x, w, b).backward(dy)
    for tensor, right in zip((x, w, b), in_double("layernorm", (x, w, b, None), dy, None, 1.0)[1]):
        assert_close(tensor.grad, right)
