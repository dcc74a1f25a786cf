# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Formulas and row-wise functions under the transforms of torch.func, forward-mode derivatives and traces."""
import normjit.torch
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch_formula_cases import assert_same, formula, gradients, leaf, leaves, rowwise, torchs


def test_transforms():
    x, z, gamma = (t.detach() for t in leaves(3, 4, 6))
    for dims in [(0, 0, None), (1, 1, None), (0, None, None)]:
        given = x, z[0] if dims[1] is None else z, gamma
        assert_same([torch.vmap(formula, dims)(*given)], [torch.vmap(torchs, dims)(*given)])
    of_sample = lambda f: torch.vmap(torch.func.grad(lambda w, x, z: f(x, z, w).square().sum()), (None, 0, 0))  # noqa: E731
    for ours in (formula, rowwise):
        assert_same([of_sample(ours)(gamma, x, z)], [of_sample(torchs)(gamma, x, z)])
        assert_same(torch.func.jvp(ours, (x, z, gamma), (z, x, gamma)), torch.func.jvp(torchs, (x, z, gamma), (z, x, gamma)))
        assert_same([torch.func.hessian(lambda x: ours(x, z[0], gamma).sum())(x[0])],
                    [torch.func.hessian(lambda x: torchs(x, z[0], gamma).sum())(x[0])])
    for dims in [(0, 0, None), (0, None, 0)]:
        given = x, z if dims[1] == 0 else z[0], gamma if dims[2] is None else leaf(3, 6).detach()
        compiled = torch.compile(torch.vmap(formula, dims), fullgraph=True, backend="aot_eager")
        assert_same([compiled(*given)], [torch.vmap(torchs, dims)(*given)])
    traced = torch.jit.trace(formula, (x, z, gamma))
    torch.testing.assert_close(traced(z, x, gamma), torchs(z, x, gamma))


def tangent(function, x, dx):
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(function(torch.autograd.forward_ad.make_dual(x, dx))).tangent


COMPILED_TRANSFORMS = {
    "jvp": lambda f, x, dx: torch.func.jvp(f, (x,), (dx,))[1],
    "dual_level": tangent,
    "jacfwd": lambda f, x, dx: torch.func.jacfwd(f)(x),
    "vjp": lambda f, x, dx: torch.func.vjp(f, x)[1](dx)[0],
    "vmap of grad": lambda f, x, dx: torch.func.vmap(torch.func.grad(lambda x, dx: (f(x) * dx).sum()))(x, dx)}


@pytest.mark.parametrize("transform", COMPILED_TRANSFORMS)
@pytest.mark.parametrize("norm", [formula, rowwise, lambda x, z, w: normjit.torch.rms_norm(x, w, residual=z)[0]])
def test_compiled_transforms(norm, transform):
    torch._dynamo.reset()
    x, dx, gamma = (t.detach() for t in leaves(4, 16))
    of = lambda x, dx: COMPILED_TRANSFORMS[transform](lambda x: norm(x, x.detach(), gamma), x, dx)  # noqa: E731
    torch.testing.assert_close(torch.compile(of, fullgraph=True, backend="aot_eager")(x, dx), of(x, dx))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("norm", [formula, rowwise])
def test_traces_of_the_dispatcher(norm, mode):
    """Both passes are in a trace of make_fx(), which computes them for other numbers."""
    traced = make_fx(lambda *tensors: gradients(norm, tensors), tracing_mode=mode)(*leaves(4, 16))
    others = [leaf(*each.shape, seed=7) for each in leaves(4, 16)]
    assert_same(traced(*others), gradients(torchs, others))
    before_autograd = make_fx(lambda x, z, w: norm(x, z, w), tracing_mode=mode, pre_dispatch=True)(*leaves(4, 16))
    assert_same([before_autograd(*others)], [torchs(*others)])
