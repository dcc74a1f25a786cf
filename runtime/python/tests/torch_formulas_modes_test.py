# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Formulas and row-wise functions under compilation, autocast, checkpoints, copies and threads, and with
tensors of all kinds."""
import concurrent.futures
import copy
import pickle

import normjit
import normjit.torch
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import checkpoint
from torch_formula_cases import GATED, assert_same, formula, gradients, leaf, leaves, rowwise, torchs

FUNCTIONS = """norm functions(x[M,N], r[M], w[N]) -> y[M,N], s[M], a[], b[N]
    c = x + like(r, x) / 2
    p = min(c, w) * max(x, 0.5) - abs(x) / N + div_or_zero(x, r) * compare(x, w)
    q = exp(-abs(c)) + log(abs(c) + 1) * sigmoid(x) + silu(x) - tanh(c) * erf(x) + softplus(c)
    s = row_sum(q * x) + row_mean(p)
    y = gelu(p) + gelu_tanh(q) - sqrt(abs(x) + 1) * rsqrt(abs(c) + 1) - s * 0.01
    a = max_abs(y)
    b = col_sum(y * y)
"""


class Block(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm, self.eps, self.weight = norm, 1e-6, torch.nn.Parameter(leaf(16, dtype=torch.float32).detach())

    def forward(self, x, z):
        if isinstance(self.norm, normjit.torch.Norm):
            return self.norm(x=x * 2, z=z, gamma=self.weight, eps=self.eps) + z
        return self.norm(x * 2, z, self.weight, eps=self.eps) + z


NORMS = {"formula": normjit.torch.formula(GATED), "rowwise": rowwise}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("norm", NORMS)
def test_compile(norm, dynamic):
    torch._dynamo.reset()
    block, plain = Block(NORMS[norm]), Block(torchs)
    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for shape in [(4, 16), (6, 16), (2, 3, 16)]:
        x, z, _ = leaves(*shape, dtype=torch.float32)
        assert_same(gradients(compiled, [x, z]), gradients(plain, [x, z]))
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, z), plain(x, z))
    compiled(x, z).sum().backward()
    plain(x, z).sum().backward()
    torch.testing.assert_close(block.weight.grad, plain.weight.grad)


def test_compiled_by_inductor():
    torch._dynamo.reset()
    x, z, gamma = leaves(4, 16, dtype=torch.float32)
    try:
        got = gradients(torch.compile(lambda x, z, w: rowwise(x + z, z, w) * 2, fullgraph=True), [x, z, gamma])
    except torch._inductor.exc.InductorError as error:
        assert "InvalidCxxCompiler" in str(error)
        pytest.skip("torch.compile finds no C++ compiler")
    assert_same(got, gradients(lambda x, z, w: torchs(x + z, z, w) * 2, [x, z, gamma]))


def test_compiled_errors_have_the_reason():
    torch._dynamo.reset()
    compiled = torch.compile(formula, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"z: its shape is \(4, 8\); must be \(4, 16\)"):
        compiled(torch.ones(4, 16), torch.ones(4, 8))


def test_operators():
    """Fake kernels and derivatives agree with kernels, as torch checks."""
    x, z, gamma = leaves(5, 16)
    given = dict(x=x, z=z, gamma=gamma, rstd=leaf(5), dy=leaf(5, 16))
    for operator, names, outputs in [(torch.ops.normjit.formula, ["x", "z", "gamma"], ["y", "rstd"]),
                                     (torch.ops.normjit.formula_backward, list(given), ["dx", "dgamma"])]:
        tensors = [given[name].detach().requires_grad_(name != "rstd") for name in names]
        torch.library.opcheck(operator.default, (GATED, names, tensors, ["eps"], [1e-5], outputs, None),
                              test_utils=["test_schema", "test_faketensor", "test_autograd_registration"])


@pytest.mark.parametrize("of", [lambda x, z, gamma: formula(x, z, gamma), rowwise])
def test_derivatives(of):
    tensors = leaves(3, 2, 5)
    torch.autograd.gradcheck(of, tensors, check_forward_ad=True, check_batched_grad=True)
    torch.autograd.gradgradcheck(of, tensors)


def by_torch(text, tensors, outputs):
    return normjit.torch.composition.forward(normjit.formula(text).text, list(tensors), list(tensors.values()), {}, outputs)


def test_what_torchs_operators_compute():
    """Kernels and torch's operators give the same results for every function of formulas."""
    tensors = dict(x=leaf(4, 12), r=leaf(4, seed=1), w=leaf(12, seed=2))
    assert_same(normjit.torch.formula(FUNCTIONS)(**tensors), by_torch(FUNCTIONS, tensors, "ysab"))


@pytest.mark.parametrize("expression", [
    "min(x, w) * max(x, 0.5) - abs(x) / N", "exp(-abs(x)) + log(abs(x) + 1) * sigmoid(w)", "silu(x) - tanh(x) * erf(w)",
    "softplus(x) / (gelu(x) + gelu_tanh(w) + 9)", "sqrt(abs(x) + 1) * rsqrt(abs(w) + 1) + row_sum(x * w) * x",
    "x - row_mean(like(r, x) * x) * compare(x, w)", "exp(x - row_max(x)) * w + row_max(x * w)", "x * detach(x * w)",
    "relu(x) * clamp(w, -.5, 1 / 2) - row_min(x * w)", "where(x - w, x, r) + where(r, w, 2)",
    "square(x) - x ^ 3 * -w ^ 2 / (abs(x) + 1) ^ 1.5", "pow(abs(x) + 1, -0.3) * (w ^ 2 + 1) ^ -.5 + x ^ 0 + x ^ -1"])
def test_gradients_of_functions(expression):
    text = f"norm n(x[M,N], r[M], w[N]) -> y[M,N] {{ y = {expression} + r * w }}"
    tensors = dict(x=leaf(4, 12), r=leaf(4, seed=1), w=leaf(12, seed=2))
    ours, (theirs,) = normjit.torch.formula(text)(**tensors), by_torch(text, tensors, "y")
    assert_same(*(torch.autograd.grad(y.square().sum(), list(tensors.values())) for y in (ours, theirs)))


def test_kinks():
    """Where a function has no derivative, its gradient is torch's own, and what is not selected does not matter."""
    x = torch.tensor([[-2.0, -1, 0, 1, 2, -0.0, 0.5, -torch.inf]])
    for ours, theirs in [("relu(x)", torch.relu), ("clamp(x, -1, 0.75)", lambda x: x.maximum(x.new_tensor(-1)).minimum(x.new_tensor(0.75))),
                         ("where(x, x, 2 * x)", lambda x: torch.where(x > 0, x, 2 * x)),
                         ("x ^ 3 - x ^ 2", lambda x: x ** 3 - x ** 2), ("relu(x) ^ 1.5", lambda x: x.relu() ** 1.5)]:
        mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        y = normjit.torch.formula(f"norm n(x[M,N]) -> y[M,N] {{ y = {ours} }}")(x=mine)
        torch.testing.assert_close(y, theirs(other))
        y.sum().backward()
        theirs(other).sum().backward()
        torch.testing.assert_close(mine.grad, other.grad)
    z = torch.tensor([[torch.nan, torch.inf, 1, torch.nan]])
    selected = normjit.formula("norm n(c[M,N], z[M,N]) -> y[M,N] { y = where(c, 3, z) }")
    c = torch.tensor([[1.0, 2, -1, torch.nan]])
    assert torch.equal(selected(c=c, z=z).y.nan_to_num(7), torch.tensor([[3.0, 3, 1, 7]]))
    dz = selected.backward(c=c[:, :3], z=z[:, :3], dy=torch.tensor([[torch.nan, 5, 5]]))
    assert dz._fields == ("dz",) and torch.equal(dz.dz, torch.tensor([[0.0, 0, 5]]))


def test_gradients_of_sums():
    text = "norm n(x[M,N], w[N]) -> y[M,N], s[N] { y = x * w; s = col_sum(y * x) * 0.5 - col_sum(x) }"
    tensors = dict(x=leaf(4, 12), w=leaf(12, seed=2))
    found = [torch.autograd.grad(y.square().sum() + (s * s).sum(), list(tensors.values()))
             for y, s in (normjit.torch.formula(text)(**tensors), by_torch(text, tensors, "ys"))]
    assert_same(*found)


@pytest.mark.parametrize("function", ["round_bf16", "round_f16"])
def test_rounding(function):
    text = f"norm rounded(x[M,N]) -> y[M,N] {{ y = {function}(x * 1.1) * x }}"
    x = leaf(4, 12, dtype=torch.float32)
    ours, (theirs,) = normjit.torch.formula(text)(x=x), by_torch(text, {"x": x}, "y")
    assert torch.equal(ours, theirs)
    assert_same(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(theirs.sum(), x))


def test_powers_of_two():
    text = "norm rounded(x[M,N]) -> y[M,N] { y = round_e8m0(x) }"
    x = torch.tensor([[0.0, -1.0, 1.0, 1.1, 4.0, 5e-3, 1e-45, 1e38, 3e38, torch.inf, torch.nan, 2.0**-127]])
    (theirs,) = by_torch(text, {"x": x}, "y")
    assert torch.equal(torch.nan_to_num(normjit.torch.formula(text)(x=x)), torch.nan_to_num(theirs))
    assert theirs[0, 2:6].tolist() == [1, 2, 4, 2.0**-7] and theirs[0, 7:10].tolist() == [2.0**127] * 3


def test_missing_factors_and_addends():
    text = "norm n(x[M,N], g?[N], b?[N]) -> y[M,N] { y = x * (g + gamma_offset) - b; }"
    x, g, b = leaves(3, 4)[0].detach(), leaf(4).detach(), leaf(4, seed=1).detach()
    for given in ({}, {"g": g}, {"b": b}, {"g": g, "b": b}):
        tensors = {"x": x, **given}
        assert_same([normjit.torch.formula(text)(**tensors)], by_torch(text, tensors, "y"))


@pytest.mark.parametrize("norm", [formula, rowwise])
def test_autocast_changes_no_type(norm):
    tensors = leaves(3, 4, 16, dtype=torch.bfloat16)
    plain = gradients(norm, tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = norm(*tensors)
    got = y, *torch.autograd.grad(y.square().sum(), tensors)
    assert all(torch.equal(one, other) and one.dtype == other.dtype for one, other in zip(got, plain))
    x, z, gamma = leaves(3, 4, 16, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert norm(x, z, gamma).dtype == torch.float32


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    tensors = leaves(3, 16)
    y = checkpoint.checkpoint(lambda x, z, w: formula(x, z, w) * rowwise(z, x, w), *tensors, use_reentrant=reentrant)
    y.square().sum().backward()
    assert_same((y, *(t.grad for t in tensors)), gradients(lambda x, z, w: torchs(x, z, w) * torchs(z, x, w), tensors))


@pytest.mark.parametrize("norm", [formula, rowwise])
def test_compiled_autograd(norm):
    tensors = leaves(3, 16)
    wanted = gradients(norm, tensors)
    y = norm(*tensors)
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(lambda: y.square().sum().backward(), backend="aot_eager")()
    assert_same((y, *(t.grad for t in tensors)), wanted)


def layouts():
    x = leaf(4, 6, 16).detach()
    yield "transposed", x.transpose(0, 1), leaf(4, 6, seed=1).detach().transpose(0, 1).unsqueeze(-1).expand(6, 4, 16)
    yield "of columns", x.reshape(24, 16).t(), x.reshape(24, 16).t()
    yield "expanded", x[:1, :1].expand(4, 6, 16), x
    yield "with gaps", x[..., ::2], x[:, :, 8:]
    yield "one row", x[0, 0], x[0, 1]
    yield "without rows", x[:0], x[:0]
    yield "without columns", x[..., :0], x[..., :0]


@pytest.mark.parametrize("norm", [formula, rowwise])
@pytest.mark.parametrize("x, z", [case[1:] for case in layouts()], ids=[case[0] for case in layouts()])
def test_layouts(norm, x, z):
    gamma = leaf(2 * x.shape[-1], seed=3).detach()[::2]
    for weight in (gamma, gamma[:1].expand(x.shape[-1])):
        tensors = [t.detach().requires_grad_() for t in (x, z, weight)]
        assert_same(gradients(norm, tensors), gradients(torchs, tensors))


@pytest.mark.parametrize("norm", [formula, rowwise])
def test_tensors_without_data(norm):
    for mode, device in ((torch.no_grad(), "meta"), (FakeTensorMode(), "cpu")):
        with mode, torch.enable_grad():
            x, z = (torch.empty(3, 4, 16, dtype=torch.bfloat16, device=device, requires_grad=True) for _ in range(2))
            gamma = torch.empty(16, device=device, requires_grad=True)
            y = norm(x, z, gamma)
            assert y.shape == x.shape and y.dtype == (torchs if norm is rowwise else torch.mul)(x, *[z, gamma][: 1 + (
                norm is rowwise)]).dtype and y.device.type == device
            found = torch.autograd.grad(y.sum(), (x, gamma))
            assert [(g.shape, g.dtype) for g in found] == [(x.shape, x.dtype), (gamma.shape, gamma.dtype)]


@pytest.mark.parametrize("types", [(torch.bfloat16, torch.float32, torch.float16), (torch.float64, torch.float32, torch.bfloat16),
                                   (torch.float32, torch.float64, torch.float64)])
@pytest.mark.parametrize("norm", [formula, rowwise])
def test_mixed_types(norm, types):
    tensors = [t.detach().to(dtype).requires_grad_() for t, dtype in zip(leaves(6, 16), types)]
    wide = [t.detach().double().requires_grad_() for t in tensors]
    got, wanted = gradients(norm, tensors), gradients(torchs, wide)
    assert got[0].dtype == (types[0] if norm is formula else torchs(*tensors).dtype)
    for one, dtype, other in zip(got, (got[0].dtype, *types), wanted):
        bound = 0.03 if torch.bfloat16 in (types[0], dtype) else 2e-3 if dtype == torch.float16 else 1e-5
        assert one.dtype == dtype and ((one.double() - other).norm() / other.norm()).item() < bound


@pytest.mark.parametrize("norm", [formula, rowwise])
@pytest.mark.parametrize("needed", [(True, False, False), (False, True, True), (False, False, True)])
def test_gradients_of_a_part(norm, needed):
    tensors = [t.detach().requires_grad_(needs) for t, needs in zip(leaves(5, 16), needed)]
    assert_same(gradients(norm, tensors), gradients(torchs, tensors))
    with torch.no_grad():
        assert not norm(*tensors).requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(norm(*(t.detach() for t in tensors)), torchs(*(t.detach() for t in tensors)))
    assert not norm(*(t.detach() for t in tensors)).requires_grad


def test_several_outputs_of_which_one_is_used():
    norm = normjit.torch.formula("norm n(x[M,N]) -> y[M,N], m[M] { m = row_mean(x); y = x * x - m }")
    x = leaf(3, 5)
    y, m = norm(x=x)
    assert m.shape == (3,)
    assert_same(torch.autograd.grad(y.sum(), x), [2 * x - 1])
    assert_same(torch.autograd.grad(norm(x=x)[1].square().sum(), x), [2 * m[:, None].expand(3, 5) / 5])


def test_slices():
    """With slices, the first dimension of matrices is S, and a weight may have a row for each."""
    norm = normjit.torch.formula("norm n(x[S,M,N], g[S,N], r[S,M]) -> y[S,M,N] { y = x * g * rsqrt(row_mean(x * x) + eps) * r }")
    x, g, r = leaf(3, 2, 5, 8), leaf(3, 8), leaf(3, 2, 5)
    right = lambda x, g, r: (x * g[:, None, None] * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * r[..., None])  # noqa: E731
    ours = lambda x, g, r: norm(x=x, g=g, r=r)  # noqa: E731
    assert_same(gradients(ours, [x, g, r]), gradients(right, [x, g, r]))
    torch.autograd.gradgradcheck(ours, (leaf(2, 1, 3), leaf(2, 3), leaf(2, 1)))


@pytest.mark.parametrize("name", ["qk_norm_rope", "qk_norm_rope_interleaved"])
def test_matrices_that_slices_share(name):
    """The norm of queries and keys with a rotation, whose angles all slices share."""
    norm = normjit.torch.formula(name)
    shapes = {"S,M,N": (3, 2, 8), "S,M": (3, 2), "S,N": (3, 8), "M,N": (2, 8), "N": (8,)}
    tensors = {name: leaf(*shapes[norm.formula.axes(name)], seed=i) for i, name in enumerate(norm.formula.inputs)}
    needed = [tensors["x"], tensors["gamma"]]
    tensors = {name: t.requires_grad_(name in ("x", "gamma")) for name, t in tensors.items()}
    y, (theirs,) = norm(**tensors), by_torch(norm.text, tensors, norm.formula.outputs[:1])
    torch.testing.assert_close(y, theirs)
    assert_same(*(torch.autograd.grad(made.square().sum(), needed) for made in (y, theirs)))


def test_copies():
    for norm in NORMS.values():
        block = Block(norm)
        x, z, _ = leaves(4, 16, dtype=torch.float32)
        for made in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
            assert made.norm is block.norm
            torch.testing.assert_close(made(x, z), block(x, z))
    scaled = normjit.torch.rowwise(torchs)  # not the object that its name refers to
    x, z, _ = leaves(4, 16)
    torch.testing.assert_close(pickle.loads(pickle.dumps(scaled))(x, z), torchs(x, z))
    assert pickle.loads(pickle.dumps(normjit.formula(GATED))) is normjit.formula(GATED)


def test_threads():
    """Forward passes run in several threads, and backward passes of their graphs in other threads."""
    cases = [leaves(n % 5 + 1, 8 * (n % 3 + 1)) for n in range(24)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda tensors: formula(*tensors), cases))
        found = list(pool.map(lambda each: torch.autograd.grad(each[0].square().sum(), each[1]), zip(made, cases)))
    for y, got, tensors in zip(made, found, cases):
        assert_same((y, *got), gradients(torchs, tensors))


def test_what_does_not_fit_is_refused():
    x = torch.ones(4, 16)
    for given, message in [(dict(x=x), "z: is missing; the formula needs it"),
                           (dict(x=x, z=x[:2]), r"z: its shape is \(2, 16\); must be \(4, 16\)"),
                           (dict(x=x, z=x, gamma=x), r"gamma: its shape is \(4, 16\); must be \(16,\)"),
                           (dict(x=x.int(), z=x), "x: its type is torch.int32; allowed: torch.float32"),
                           (dict(x=x, z=x.to_sparse()), "z: its layout is torch.sparse_coo"),
                           (dict(x=x, z=x.to("meta")), "z: is on meta; x is on cpu"),
                           (dict(x=x, z=x.numpy()), "z: is ndarray; must be a tensor"),
                           (dict(x=x, z=x, eps=x), "eps: is Tensor; must be a number"),
                           (dict(x=x[0, 0], z=x[0, 0]), r"x: \[M,N\] beside a matrix of 0 dimensions"),
                           (dict(x=x, z=x, other=1.0), "other: the formula has nothing of this name")]:
        with pytest.raises(normjit.InvalidArgument, match=message):
            normjit.torch.formula(GATED)(**given)
    with pytest.raises(normjit.InvalidArgument, match=r"x: \[S,M,N\] beside a matrix of 1 dimension$"):
        normjit.torch.formula("groupnorm")(x=x[0], gamma=x[0], beta=x[0])
