# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Formulas and row-wise functions in PyTorch that read or write int8, e4m3, e5m2 and e8m0."""
import normjit
import normjit.torch
import pytest
import torch
from torch_formula_cases import drawn


@pytest.mark.parametrize("name, types", [
    ("rmsnorm_i8", {"y": torch.int8}), ("rmsnorm_e4m3", {"y": torch.float8_e4m3fn}), ("rmsnorm_e4m3", {"y": torch.float8_e5m2}),
    ("rmsnorm_mx", {"y": torch.float8_e4m3fn, "scale": torch.float8_e8m0fnu}), ("rmsnorm_blocks", {"y": torch.float8_e4m3fn})])
def test_outputs_of_8_bits(name, types):
    norm, x, gamma = normjit.torch.formula(name), drawn(3, 5, 256), drawn(256)
    made = norm(x=x, gamma=gamma, dtypes=types)
    wide = norm(x=x, gamma=gamma, dtypes={"y": torch.float32})
    for each, exact, output in zip(made, wide, ("y", "scale")):
        assert each.dtype == types.get(output, torch.float32)
        # e8m0 is rounded up, at the wide result as well; the others are rounded to nearest: half of the last of 4 or 3 bits
        far = 0.5 if each.dtype == torch.int8 else exact.abs().float() * 2.0**-4 if output == "y" else exact.abs().float()
        far = far * 2 if each.dtype == torch.float8_e5m2 else far
        assert ((each.float() - exact.float()).abs() <= far + 2.0**-9).all()
    compiled = torch.compile(lambda x: norm(x=x, gamma=gamma, dtypes=types), backend="aot_eager", fullgraph=True)(x)
    of_slices = torch.func.vmap(lambda x: norm(x=x, gamma=gamma, dtypes=types))(x)
    for one, other, batched in zip(made, compiled, of_slices):
        assert one.dtype == other.dtype == batched.dtype and torch.equal(one.float(), other.float())
        assert torch.isclose(one.float(), batched.float(), rtol=1e-5).float().mean() > 0.98  # torch's sums round otherwise
    assert [each.dtype for each in norm(x=x[:0], gamma=gamma, dtypes=types)] == [each.dtype for each in made]


def test_gradients_beside_int8():
    """int8 has no gradient; what is computed beside it has one."""
    norm, x, gamma = normjit.torch.formula("rmsnorm_i8"), drawn(3, 256).requires_grad_(), drawn(256)
    y, scale = norm(x=x, gamma=gamma, dtypes={"y": torch.int8})
    assert not y.requires_grad
    scale.sum().backward()
    normal = x.detach().clone().requires_grad_()
    v = normal * torch.rsqrt(normal.square().mean(-1, keepdim=True) + 1e-5) * gamma
    (v.abs().amax(-1) / 127).sum().backward()
    torch.testing.assert_close(x.grad, normal.grad)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("compiled", [False, True])
def test_matrices_of_8_bits_are_read(dtype, compiled):
    norm = normjit.torch.formula("norm f(x[M,N], scale[M], g[N]) -> y[M,N] { v = x * scale; y = v * rsqrt(row_mean(v * v) + eps) * g }")
    x, scale, g = (drawn(3, 5, 256) * 40).to(dtype), drawn(3, 5).abs() + 0.1, drawn(256).requires_grad_()
    v = x.float() * scale[..., None]
    right = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-5) * g
    y = (torch.compile(norm, backend="aot_eager", fullgraph=True) if compiled else norm)(x=x, scale=scale, g=g)
    torch.testing.assert_close(y, right)
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), g), torch.autograd.grad(right.square().sum(), g))
    assert norm(x=x, scale=scale, g=g, dtypes={"y": torch.bfloat16}).dtype == torch.bfloat16
    torch.testing.assert_close(torch.func.vmap(lambda x, scale: norm(x=x, scale=scale, g=g.detach()))(x, scale), y.detach())
    with pytest.raises(normjit.InvalidArgument, match="scale: its type is torch.int8; allowed: torch.float32"):
        norm(x=x, scale=scale.to(torch.int8), g=g)


def dequantised(x, scale, g):
    v = x.float() * scale
    return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-5) * g


def of_types(x, scale, g):
    return torch.softmax(x.to(torch.bfloat16) * scale, -1) * g + torch.where(x.to(g.dtype) > 3, x.to(g.dtype), g)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("function", [dequantised, of_types])
def test_row_wise_functions_of_8_bits(function, dtype, compiled):
    x = (drawn(3, 5, 256) * 40).to(dtype)
    scale, g = (drawn(3, 5, 1).abs() + 0.1).requires_grad_(), drawn(256).requires_grad_()
    row_by_row = normjit.torch.rowwise(function)
    call = torch.compile(lambda *given: row_by_row(*given), backend="aot_eager", fullgraph=True) if compiled else row_by_row
    y, right = call(x, scale, g), function(x, scale.double(), g.double())
    torch.testing.assert_close(y.double(), right, rtol=1e-5, atol=1e-5)
    dy = drawn(3, 5, 256)
    for one, other in zip(torch.autograd.grad(y, [scale, g], dy), torch.autograd.grad(right, [scale, g], dy.double())):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_row_wise_functions_of_several_types():
    """A matrix of 8 bits beside one of 16, results of 8 bits, and arithmetic that makes floating-point numbers of
    integers."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randint(-128, 128, (4, 64), generator=generator).to(torch.int8)
    x = drawn(4, 64).bfloat16()
    for function in (lambda x, q: (x.float() + q.float() * 0.1).mean(-1), lambda x, q: (q * 0.25).round().to(torch.int8),
                     lambda x, q: (q.float() / 3).to(q.dtype), lambda x, q: q / 2 + x):
        got, wanted = normjit.torch.rowwise(function)(x, q), function(x.float(), q)
        assert got.dtype == function(x, q).dtype
        torch.testing.assert_close(got.float(), wanted.float(), rtol=2e-2 if got.dtype == torch.bfloat16 else 1e-5, atol=1e-5)


def test_the_gradient_of_a_matrix_of_8_bits():
    x, scale, g = (drawn(3, 5, 256) * 40).to(torch.float8_e4m3fn).requires_grad_(), drawn(3, 5, 1), drawn(256)
    y, right = normjit.torch.rowwise(of_one_use)(x, scale, g), of_one_use(x, scale, g)
    (got,), (wanted,) = (torch.autograd.grad(each, x, drawn(3, 5, 256) * 10) for each in (y, right))
    assert got.dtype == wanted.dtype == torch.float8_e4m3fn
    torch.testing.assert_close(got.float(), wanted.float(), rtol=0.13, atol=2.0**-9)


def of_one_use(x, scale, g):
    x = x.float()
    return x * scale * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * g


@pytest.mark.parametrize("function, shape, message", [
    (lambda x, q: x * q.float(), (256,), "q: its type is torch.int8; must be a floating-point type of torch.float32, .* or, "
     "with the shape of x, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8$"),
    (lambda x, q: x * (q * 2), (3, 256), "makes a tensor of torch.int8; formulas compute with floating-point numbers only")])
def test_row_wise_functions_of_8_bits_that_are_refused(function, shape, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        normjit.torch.rowwise(function)(drawn(3, 256), torch.ones(shape, dtype=torch.int8))


@pytest.mark.parametrize("types, message", [
    ({"scale": torch.int8}, "dtypes: scale: is not an output matrix; allowed: y"), ({"q": torch.int8}, "dtypes: q: is not an output matrix"),
    ({"y": torch.int16}, r"dtypes: y: torch.int16; allowed: torch.float32, .*torch.int8"), ({"y": "int8"}, "dtypes: y: int8; allowed"),
    (torch.int8, "dtypes: is dtype; must be a mapping of outputs' names to types")])
def test_types_that_no_kernel_stores(types, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        normjit.torch.formula("rmsnorm_i8")(x=drawn(3, 256), dtypes=types)
