# SPDX-License-Identifier: Apache-2.0
# needs: torch transformers
"""Compares rounding="llama" with the eager LlamaRMSNorm of transformers and its autograd, bit by bit, on the CPU."""
import normjit
import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


def steps(a, b):
    """Returns the distance between the elements of a and b, counted in representable numbers of their type."""
    assert a.dtype == b.dtype and a.shape == b.shape
    least = torch.iinfo(BITS[a.dtype]).min

    def order(t):
        number = t.detach().view(BITS[t.dtype]).long()
        return torch.where(number < 0, least - number, number)

    return (order(a) - order(b)).abs()


def assert_equal_bits(got, wanted, most_steps):
    apart = steps(got, wanted)
    assert apart.max() <= most_steps
    assert (apart == 0).float().mean() >= 0.99


@pytest.mark.parametrize("rows, cols", [(512, 1024), (64, 4096), (1000, 333), (1, 96)])
@pytest.mark.parametrize("x_type, weight_type", [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16),
                                                 (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16)])
def test_llama(rows, cols, x_type, weight_type):
    generator = torch.Generator().manual_seed(rows + cols)
    norm = LlamaRMSNorm(cols, eps=1e-6).to(weight_type)
    with torch.no_grad():
        norm.weight.copy_(1 + 0.2 * torch.randn(cols, generator=generator))
    x = (3 * torch.randn(rows, cols, generator=generator) + 0.5).to(x_type).requires_grad_()
    y = norm(x)
    dy = torch.randn(rows, cols, generator=generator).to(y.dtype)
    y.backward(dy)

    given, weight = x.detach(), norm.weight.detach()
    ours = normjit.rms_norm(given, weight, eps=1e-6, rounding="llama", out={"y": torch.empty_like(dy)})
    assert (ours.y == y).float().mean() >= 0.99
    assert ((ours.y - y).abs() <= 2 * torch.finfo(x_type).eps * y.abs()).all()  # a step of xhat, then a rounding
    got = normjit.rms_norm_backward(given, dy, weight, eps=1e-6, rounding="llama")
    assert_equal_bits(got.dx, x.grad, most_steps=1)
    # An xhat that is one step off changes the sum, and the order of additions decides its last bits.
    rtol = 0 if weight_type == torch.float32 else torch.finfo(weight_type).eps
    torch.testing.assert_close(got.dgamma, norm.weight.grad, rtol=rtol, atol=4 * torch.finfo(x_type).eps)

    plain = normjit.rms_norm_backward(given, dy, weight, eps=1e-6)
    assert (steps(plain.dx, x.grad) == 0).float().mean() < 0.99  # without these roundings the results differ
