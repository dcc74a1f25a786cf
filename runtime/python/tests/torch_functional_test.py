# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""normjit.torch.layer_norm and rms_norm, their modules, and the operators below them."""
import re

import normjit.torch
import pytest
import torch
from normjit.torch import _kernels, operators
from torch_cases import DEVICES, NORMS, Served, assert_close, assert_gradients, case, leaf, reference


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "dtype, weight_dtype",
    [
        (torch.float32, None),
        (torch.bfloat16, None),
        (torch.bfloat16, torch.float32),
        (torch.float16, None),
        (torch.float64, None),
    ],
)
def test_gradients(norm, dtype, weight_dtype, device):
    x, w, b, dy = case(6, 5, 70, dtype=dtype, weight_dtype=weight_dtype, device=device)
    y = NORMS[norm](x, w, b)
    assert y.dtype == dtype
    with Served(1):
        y.backward(dy)
    assert_gradients(norm, x, w, b, dy)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype, weight_dtype", [(torch.float64, torch.float32), (torch.float64, torch.bfloat16),
                                                 (torch.float32, torch.float64), (torch.bfloat16, torch.float64)])
def test_f64_beside_other_types(norm, dtype, weight_dtype, device):
    """No kernel takes both types. The other tensors are converted, and each gradient has the type of its tensor."""
    x, w, b, dy = case(6, 5, 70, dtype=dtype, weight_dtype=weight_dtype, device=device)
    with Served(1):
        NORMS[norm](x, w, b).backward(dy)
    wanted = reference(x, w, b, dy, norm=norm)
    for got, right in zip((x, w) if norm == "rmsnorm" else (x, w, b), wanted):
        assert_close(got.grad, right, stored=torch.float32)
        assert got.grad.dtype == got.dtype


@pytest.mark.parametrize("norm", NORMS)
def test_forward_mode(norm):
    """Derivatives along a direction use torch's own formulas, even if weights require gradients."""
    x, w, b, dx = case(6, 70, dtype=torch.float64)
    ad = torch.autograd.forward_ad
    with ad.dual_level():
        got = ad.unpack_dual(NORMS[norm](ad.make_dual(x.detach(), dx), w, b)).tangent
    formula = normjit.torch.functional.formula
    _, wanted = torch.func.jvp(lambda x: formula(norm, x, w, b if norm == "layernorm" else None, 1e-5, 0.0), (x,), (dx,))
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("norm", NORMS)
def test_forward(norm):
    x, w, b, _ = case(6, 70, dtype=torch.float64)
    functional = torch.nn.functional
    right = functional.layer_norm(x, (70,), w, b) if norm == "layernorm" else functional.rms_norm(x, (70,), w, 1e-5)
    torch.testing.assert_close(NORMS[norm](x, w, b), right)
    torch.testing.assert_close(NORMS[norm](x, None, None), NORMS[norm](x, torch.ones_like(w), torch.zeros_like(b)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype, weight_dtype", [(torch.float32, None), (torch.bfloat16, None), (torch.float64, None),
                                                 (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16)])
def test_norms_themselves(norm, dtype, weight_dtype, device):
    """In eager mode normjit's kernels round once, from f32, as the formula in torch's operators does."""
    x, w, b, _ = case(6, 5, 70, dtype=dtype, weight_dtype=weight_dtype, device=device)
    formula = normjit.torch.functional.formula
    for rows, weight, bias in ((x, w, b), (x, None, None), (x[:, :0], w, b), (x.transpose(0, 1), w, b)):
        with Served(1):
            y = NORMS[norm](rows, weight, bias, eps=0.1)
        assert y.dtype == dtype and y.shape == rows.shape
        bias = bias if norm == "layernorm" else None
        wanted = formula(norm, rows, weight, bias, 0.1, 0.0)
        steps = 8 if dtype in (torch.float32, torch.float64) else 1
        assert ((y - wanted).abs() <= steps * torch.finfo(dtype).eps * wanted.abs().clamp(min=1.0)).all()
        with torch.no_grad(), Served(1):
            assert torch.equal(NORMS[norm](rows, weight, bias, eps=0.1), y)
    x.data[0, 0, 0] = float("nan")
    y = NORMS[norm](x, w, b)
    assert y[0, 0].isnan().all() and not y[0, 1:].isnan().any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_sums(norm, dtype, device):
    """x + residual is stored rounded; the norm is computed from the unrounded sum."""
    x, w, b, _ = (t.detach() for t in case(6, 70, dtype=dtype, device=device))
    residual = leaf(7, 6, 70, dtype=dtype, device=device).detach()
    with Served(1):
        y, h = NORMS[norm](x, w, b, residual=residual)
    assert torch.equal(h, x + residual)
    bias = b.double() if norm == "layernorm" else None
    wanted = normjit.torch.functional.formula(norm, x.double() + residual.double(), w.double(), bias, 1e-5, 0.0)
    assert_close(y.detach(), wanted)
    if norm == "layernorm":
        y, h, mean, rstd = torch.ops.normjit.layer_norm(x, residual, [70], w, b, 1e-5, 0.0, True)
    else:
        y, h, rstd = torch.ops.normjit.rms_norm(x, residual, [70], w, 1e-5, 0.0, True)
        mean = torch.zeros(6, 1, device=device)
    assert mean.shape == rstd.shape == (6, 1) and mean.dtype == rstd.dtype == torch.float32
    exact = x.double() + residual.double()
    torch.testing.assert_close(mean.double(), exact.mean(-1, keepdim=True) if norm == "layernorm" else mean.double())
    torch.testing.assert_close(rstd.double(), ((exact - mean).square().mean(-1, keepdim=True) + 1e-5).rsqrt(), rtol=1e-5,
                               atol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_residual_of_another_type(norm):
    """The sum and y have the type that torch gives the sum. Nothing is fused."""
    x, w, b, dy = case(6, 70, dtype=torch.bfloat16)
    residual, dh = leaf(7, 6, 70), leaf(8, 6, 70).detach()
    with Served(2):
        y, h = NORMS[norm](x, w, b, residual=residual)
        torch.autograd.backward((y, h), (dy.float(), dh))
    assert y.dtype == h.dtype == torch.float32 and torch.equal(h, x + residual)
    assert_close(residual.grad, reference((x + residual).detach(), w, b, dy.float(), norm=norm)[0] + dh)
    assert torch.equal(x.grad, residual.grad.bfloat16())


@pytest.mark.parametrize("norm", NORMS)
def test_residual(norm):
    """Returns y of the sum, the sum, and one backward pass for both."""
    x, w, b, dy = case(6, 70)
    residual, dh = leaf(7, 6, 70), leaf(8, 6, 70).detach()
    y, h = NORMS[norm](x, w, b, residual=residual)
    torch.testing.assert_close(h, x + residual)
    with Served(1):
        torch.autograd.backward((y, h), (dy, dh))
    dx = reference((x + residual).detach(), w, b, dy, norm=norm)[0] + dh
    assert_close(x.grad, dx)
    assert torch.equal(x.grad, residual.grad)


def test_the_sum_needs_a_gradient_only_if_a_term_does():
    x, w, _, dy = case(6, 70)
    for terms in ((x, dy), (dy, x), (x.detach(), dy)):
        y, h = normjit.torch.rms_norm(terms[0], w, residual=terms[1])
        assert y.requires_grad and h.requires_grad == (terms[0].requires_grad or terms[1].requires_grad)
        (dw,) = torch.autograd.grad(y, w, dy)
        assert_close(dw, reference((terms[0] + terms[1]).detach(), w, None, dy, norm="rmsnorm")[1])


def test_sum_alone_or_norm_alone():
    x, w, _, dy = case(6, 70)
    residual = leaf(7, 6, 70)
    y, h = normjit.torch.rms_norm(x, w, residual=residual)
    (dx,) = torch.autograd.grad(h, x, dy, retain_graph=True)
    assert torch.equal(dx, dy)
    with Served(1):
        (dx,) = torch.autograd.grad(y, x, dy)
    assert_close(dx, reference((x + residual).detach(), w, None, dy, norm="rmsnorm")[0])


def test_zero_centred():
    x, w, _, dy = case(6, 70)
    normjit.torch.rms_norm(x, w, weight_offset=1.0).backward(dy)
    assert_close(x.grad, reference(x, w.detach() + 1, None, dy, norm="rmsnorm")[0])


@pytest.mark.parametrize("norm", NORMS)
def test_second_derivatives(norm):
    """The operators have no second derivative, so without a guard the results would be silently wrong."""
    x, w, b, _ = case(3, 7, dtype=torch.float64)
    residual = leaf(7, 3, 7, dtype=torch.float64)
    call = lambda x, w, b, r: NORMS[norm](x, w, b, residual=r)  # noqa: E731
    assert torch.autograd.gradcheck(call, (x, w, b, residual), raise_exception=True)
    assert torch.autograd.gradgradcheck(call, (x, w, b, residual))


def test_what_needs_no_gradient():
    x, w, b, dy = case(6, 70)
    x.requires_grad_(False)
    with Served(2):
        normjit.torch.layer_norm(x, w, b).backward(dy)
    assert x.grad is None
    assert_close(w.grad, reference(x, w, b, dy)[1])


def test_operators():
    """torch's own checks: schema, fake kernels, and AOTAutograd."""
    normjit.torch.rms_norm(torch.ones(1, 2))  # this defines them
    x, w, b, dy = (t.detach() for t in case(6, 70))
    tests = ("test_schema", "test_faketensor")
    for mask in ([True, True], [True, False], [False, True]):
        torch.library.opcheck(torch.ops.normjit.rms_norm_backward.default, (dy, x, [70], None, w, dy, 1e-5, 1.0, mask),
                              test_utils=tests)
    torch.library.opcheck(torch.ops.normjit.layer_norm_backward.default,
                          (dy, x, [70], None, None, w, b, None, 1e-5, 0.0, [True, True, True]), test_utils=tests)
    for residual, statistics in ((None, True), (dy, False)):
        torch.library.opcheck(torch.ops.normjit.rms_norm.default, (x, residual, [70], w, 1e-5, 1.0, statistics),
                              test_utils=tests)
        torch.library.opcheck(torch.ops.normjit.layer_norm.default, (x, residual, [70], w, b, 1e-5, 0.0, statistics),
                              test_utils=tests)


def test_on_the_meta_device():
    """A model without data gives shapes and types, as torch's own norms do."""
    for make in (normjit.torch.LayerNorm, normjit.torch.RMSNorm):
        norm = make(8, device="meta", dtype=torch.bfloat16)
        x = torch.empty(3, 5, 8, device="meta", requires_grad=True)
        y, h = norm(x, residual=torch.empty(3, 5, 8, device="meta", dtype=torch.bfloat16))
        (y.sum() + h.sum()).backward()
        assert all((t.device.type, t.shape, t.dtype) == ("meta", x.shape, x.dtype) for t in (y, h, x.grad))
        assert all((p.grad.device.type, p.grad.dtype) == ("meta", torch.bfloat16) for p in norm.parameters())


def test_no_kernel_for_the_device(monkeypatch):
    monkeypatch.setattr(operators, "served", {"cuda"})
    monkeypatch.setattr(_kernels, "why_not", lambda device: f"none for a {device}")
    with pytest.raises(normjit.Unavailable, match="x: is on cpu; none for a cpu"):
        normjit.torch.rms_norm(torch.ones(2, 3))


@pytest.mark.parametrize("named, message", [
    ({"x": [1.0, 2.0]}, "x: is list; must be a tensor"),
    ({"x": torch.ones(2, 8).numpy()}, "x: is ndarray; must be a tensor"),
    ({"x": None}, "x: is NoneType; must be a tensor"),
    ({"x": torch.tensor(1.0)}, "x: has no dimensions; the last must be the normalised one"),
    ({"x": torch.ones(2, 8, dtype=torch.int32)}, "x: its type is torch.int32; allowed: torch.float32, "),
    ({"x": torch.ones(2, 8, dtype=torch.complex64)}, "x: its type is torch.complex64; allowed: torch.float32, "),
    ({"x": torch.nested.nested_tensor([torch.ones(2, 8)], layout=torch.jagged)}, "x: is a nested tensor; give its values"),
    ({"x": torch.ones(2, 8).to_sparse()}, "x: its layout is torch.sparse_coo; must be torch.strided"),
    ({"weight": torch.ones(8).to_sparse()}, "weight: its layout is torch.sparse_coo; must be torch.strided"),
    ({"weight": torch.ones(8, device="meta")}, "weight: is on meta; x is on cpu"),
    ({"weight": torch.ones(2, 8, 8), "x": torch.ones(8, 8)}, "weight: its shape is (2, 8, 8)"),
    ({"weight": torch.ones(1, 1, 1), "x": torch.ones(1, 1)}, "weight: its shape is (1, 1, 1)"),
    ({"residual": torch.ones(8)}, "residual: its shape is (8,); must be that of x, (2, 8)"),
    ({"residual": torch.ones(2, 8, device="meta")}, "residual: is on meta; x is on cpu"),
    ({"weight": 1.0}, "weight: is float; must be a tensor"),
    ({"weight": torch.tensor(1.0)}, "weight: its shape is ()"),
    ({"weight": torch.ones(8, dtype=torch.int64)}, "weight: its type is torch.int64; allowed: "),
    ({"residual": 1.0}, "residual: is float; must be a tensor"),
    ({"eps": -1.0}, "eps: -1.0; must be a finite number and at least 0"),
    ({"eps": None}, "eps: None; must be a finite number and at least 0"),
    ({"eps": float("nan")}, "eps: nan; must be a finite number and at least 0"),
    ({"eps": "small"}, "eps: 'small'; must be a finite number and at least 0"),
    ({"eps": 10**400}, "eps: inf; must be a finite number and at least 0"),
    ({"weight_offset": None}, "weight_offset: None; must be a finite number"),
    ({"weight_offset": float("nan")}, "weight_offset: nan; must be a finite number"),
])
@pytest.mark.parametrize("norm", [normjit.torch.layer_norm, normjit.torch.rms_norm])
def test_bad_input(norm, named, message):
    with pytest.raises(normjit.InvalidArgument, match="^" + re.escape(message)):
        norm(**{"x": torch.ones(2, 8), **named})


def test_modules():
    x, _, _, dy = case(6, 70)
    ours, torchs = normjit.torch.LayerNorm(70), torch.nn.LayerNorm(70)
    torch.nn.init.normal_(torchs.weight)
    ours.load_state_dict(torchs.state_dict())
    with Served(2):
        ours(x).backward(dy)
    assert_gradients("layernorm", x, ours.weight, ours.bias, dy)
    assert normjit.torch.RMSNorm(8).weight.tolist() == [1.0] * 8
    assert normjit.torch.RMSNorm(8, weight_offset=1.0).weight.tolist() == [0.0] * 8
    y, h = normjit.torch.RMSNorm(70)(x, residual=x)
    torch.testing.assert_close(h, 2 * x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("transform", ["vjp", "jacrev", "jacfwd", "vmap", "grad"])
@pytest.mark.parametrize("with_residual", [False, True])
def test_transforms_of_functions(norm, transform, with_residual):
    """The weight requires a gradient, although the transform differentiates by x only."""
    x, r, dy = (leaf(i, 3, 8, dtype=torch.float64).detach() for i in (1, 2, 3))
    w = leaf(4, 8, dtype=torch.float64)
    formula = normjit.torch.functional.formula

    def ours(x):
        return NORMS[norm](x, w, None, residual=of_shape(x))[0] if with_residual else NORMS[norm](x, w, None)

    def right(x):
        return formula(norm, x + of_shape(x) if with_residual else x, w, None, 1e-5, 0.0)

    def of_shape(x):
        return r if x.dim() == 2 else r[0]  # x is a row under vmap

    of = {"vjp": lambda f: torch.func.vjp(f, x)[1](dy)[0], "jacrev": lambda f: torch.func.jacrev(f)(x),
          "jacfwd": lambda f: torch.func.jacfwd(f)(x), "vmap": lambda f: torch.func.vmap(torch.func.jacrev(f))(x),
          "grad": lambda f: torch.func.grad(lambda x: f(x).square().sum())(x)}[transform]
    got, wanted = of(ours), of(right)
    assert_close(got.detach(), wanted.detach())
    assert_close(torch.autograd.grad(got.square().sum(), w)[0], torch.autograd.grad(wanted.square().sum(), w)[0])


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize("make", [normjit.torch.LayerNorm, normjit.torch.RMSNorm])
def test_captured(make):
    """After prepare(), a CUDA graph captures the norm of a sum, in training and in inference, and replays it on other
    data."""
    module = make(512).cuda()
    normjit.torch.prepare(module, residual=True)
    x, residual, dy, dh = (leaf(seed, 64, 512, device="cuda").detach() for seed in range(4))
    x.requires_grad_()
    training, inference = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with Served(3):
        with torch.cuda.graph(training):
            y, h = module(x, residual=residual)
            gradients = torch.autograd.grad((y, h), (x, module.weight), (dy, dh))
        with torch.no_grad(), torch.cuda.graph(inference):
            y_alone, h_alone = module(x, residual=residual)
    with torch.no_grad():
        x.mul_(-2)
    training.replay()
    inference.replay()
    y_now, h_now = module(x, residual=residual)
    wanted = torch.autograd.grad((y_now, h_now), (x, module.weight), (dy, dh))
    torch.cuda.synchronize()
    for got, right in ((y, y_now), (h, h_now), (h_alone, h_now), *zip(gradients, wanted)):
        assert torch.equal(got.detach(), right.detach())
    torch.testing.assert_close(y_alone, y_now.detach())  # another kernel computes it, without statistics
