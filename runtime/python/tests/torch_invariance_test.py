# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""With batch_invariant(), a row has the same bits in every batch: on a server that takes one token, and in a trainer
that takes thousands."""
import normjit
import normjit.torch
import pytest
import torch

ROWS = (1, 2, 3, 17, 64, 300)
COLS = 4096  # so wide that threads share the columns if there are few rows


class Llama(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.linspace(0.5, 1.5, COLS, dtype=dtype)), 1e-6

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


@pytest.fixture(autouse=True, params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request):
    """The device on which modules and tensors are made; batches are invariant on it."""
    with torch.device(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def invariant():
    normjit.torch.batch_invariant()
    assert normjit.torch.is_batch_invariant()
    yield
    normjit.torch.batch_invariant(False)
    torch.compiler.reset()


def drawn(rows, dtype, seed=0):
    made = torch.randn(rows, COLS, generator=torch.Generator("cpu").manual_seed(seed), dtype=torch.float32, device="cpu")
    return made.to(torch.get_default_device(), dtype)


def assert_invariant(function, dtype):
    """Compares the results for the first rows of a batch, and for rows from its middle, with those of the whole batch."""
    whole = function(drawn(max(ROWS), dtype))
    for rows in ROWS:
        for begin in (0, max(ROWS) - rows):
            part = function(drawn(max(ROWS), dtype)[begin:begin + rows].clone())
            for got, of in zip(part, whole):
                assert torch.equal(got, of[begin:begin + rows]), (rows, begin)


def with_gradient(module):
    def run(x):
        x.requires_grad_()
        y = module(x)
        y.backward(torch.linspace(-1, 1, COLS, dtype=y.dtype).expand_as(y))
        return y.detach(), x.grad
    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_patched_modules(dtype):
    module = normjit.torch.patch(Llama(dtype), forward=True)
    before = normjit.torch.report()["calls"]
    assert_invariant(with_gradient(module), dtype)
    assert normjit.torch.report()["calls"] - before == 2 * (1 + 2 * len(ROWS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_functions_and_operators(dtype):
    weight, bias = torch.linspace(0.5, 1.5, COLS, dtype=dtype), torch.linspace(-1, 1, COLS, dtype=dtype)
    assert_invariant(with_gradient(lambda x: normjit.torch.layer_norm(x, weight, bias)), dtype)
    layer = torch.nn.LayerNorm(COLS, dtype=dtype)

    def gradient(x):
        x.requires_grad_()
        layer(x).backward(torch.linspace(-1, 1, COLS, dtype=dtype).expand_as(x))
        return (x.grad,)

    # The bits also depend on the statistics of torch's forward pass.
    wide = torch.nn.functional.layer_norm(drawn(max(ROWS), dtype), (COLS,))
    if all(torch.equal(torch.nn.functional.layer_norm(drawn(max(ROWS), dtype)[:rows], (COLS,)), wide[:rows]) for rows in ROWS):
        with normjit.torch.enabled():
            assert_invariant(gradient, dtype)


def test_formulas():
    norm = normjit.torch.rowwise(lambda x: torch.softmax(x, -1) * x.sum(-1, keepdim=True))
    assert_invariant(with_gradient(norm), torch.float32)
    x = drawn(64, torch.float32).cpu().numpy()
    l2norm = normjit.formula("l2norm")
    assert (l2norm(x=x, eps=1e-5, invariant=True).y[:1] == l2norm(x=x[:1], eps=1e-5, invariant=True).y).all()
    with pytest.raises(normjit.InvalidArgument, match="invariant: is int; must be True or False"):
        l2norm(x=x, invariant=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_graphs(dtype):
    module = torch.compile(Llama(dtype), backend="normjit", options={"normjit.take": "all"}, dynamic=True)
    assert_invariant(with_gradient(module), dtype)
    formulas = [each["formula"] for each in normjit.torch.graph_report() if each["taken"] and f"cols={COLS} " in each["formula"]]
    assert formulas and all("invariant=1" in each for each in formulas if "[M,N]" in each.partition("->")[2])


def test_what_is_no_bool_is_refused():
    with pytest.raises(normjit.InvalidArgument, match="on: 1; must be True or False"):
        normjit.torch.batch_invariant(1)
