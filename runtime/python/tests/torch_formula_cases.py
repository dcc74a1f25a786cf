# SPDX-License-Identifier: Apache-2.0
"""A gated norm by torch, as a formula and as a row-wise function, with tensors for it."""
import normjit.torch
import torch

GATED = "norm gated(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M] { rstd = rsqrt(row_mean(x * x) + eps); " \
        "y = x * rstd * gamma * silu(z) }"


def torchs(x, z, gamma=1.0, eps=1e-5):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gamma * torch.nn.functional.silu(z)


@normjit.torch.rowwise
def rowwise(x, z, gamma, eps=1e-5):
    return torchs(x, z, gamma, eps)


def formula(x, z, gamma=None):
    return normjit.torch.formula(GATED)(x=x, z=z, gamma=gamma)


def drawn(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def leaf(*shape, dtype=torch.float64, seed=0):
    return drawn(*shape, dtype=dtype, seed=seed).requires_grad_()


def leaves(*shape, dtype=torch.float64):
    return leaf(*shape, dtype=dtype), leaf(*shape, dtype=dtype, seed=1), leaf(shape[-1], dtype=dtype, seed=2)


def gradients(function, tensors):
    y = function(*tensors)
    return y, *torch.autograd.grad(y.square().sum(), [t for t in tensors if t.requires_grad])


def assert_same(got, wanted, **bounds):
    for one, other in zip(got, wanted):
        torch.testing.assert_close(one, other, **bounds)
