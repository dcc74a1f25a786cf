# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""patch() on norms that take a gate in addition to x."""
import copy
import pickle

import normjit.torch
import pytest
import torch
from torch.utils import checkpoint
from torch_cases import leaf
from torch_gates import REFUSED, SERVED, WIDTH, Gelu, GateThenNorm, Groups, NormThenGate

BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float64: 1e-5}


def made(kind, dtype=torch.float32):
    module = kind().to(dtype)
    module.weight.data = leaf(3, *module.weight.shape, dtype=dtype).data
    return module


def passes(module, *inputs):
    """Returns y and the gradients of the inputs and the weight."""
    y = module(*inputs)
    dy = leaf(5, *y.shape, dtype=y.dtype).detach()
    return y, *torch.autograd.grad(y, [*(t for t in inputs if t.requires_grad), *module.parameters()], dy)


def inputs(*shape, dtype=torch.float32):
    return leaf(1, *shape, dtype=dtype), leaf(2, *shape, dtype=dtype)


def assert_near(got, wanted, bound):
    for one, other in zip(got, wanted):
        off = (one.double() - other).norm() / other.norm()
        assert one.shape == other.shape and off <= bound, off


@pytest.fixture
def left():
    """Returns how many calls patched modules left to their own forward in this test."""
    before = sum(normjit.torch.report()["left_to_modules"].values())
    return lambda: sum(normjit.torch.report()["left_to_modules"].values()) - before


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.__name__)
def test_served(kind, dtype, left):
    """y has the module's bits, and gradients agree with double precision; with forward=True y is normjit's."""
    plain = made(kind, dtype)
    tensors = inputs(3, 5, WIDTH, dtype=dtype)
    wide = passes(copy.deepcopy(plain).double(), *(t.detach().double().requires_grad_() for t in tensors))
    (found,) = normjit.torch.found(plain)
    assert found.gated == SERVED[kind] and found.norm == ("rmsnorm" if kind is GateThenNorm else SERVED[kind])
    for forward in (False, True):
        module = normjit.torch.patch(copy.deepcopy(plain), forward=forward, verify=True)
        got = passes(module, *tensors)
        assert forward or torch.equal(got[0], plain(*tensors))
        assert_near(got, wide, BOUNDS[dtype])
        assert type(got[0].grad_fn).__name__ != type(plain(*tensors).grad_fn).__name__
    assert left() == 0 and normjit.torch.report(module)["norms"][0][2] == "normjit's, by patch()"


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_refused(kind):
    (found,) = normjit.torch.found(kind())
    assert found.norm is None and found.gated is None and REFUSED[kind] in found.reason, found
    with pytest.raises(normjit.InvalidArgument, match="no norm that normjit knows"):
        normjit.torch.patch(kind())


def test_ways_to_call(left):
    module, plain = normjit.torch.patch(made(GateThenNorm)), made(GateThenNorm)
    x, gate = inputs(4, WIDTH)
    for call in (lambda m: m(x, gate), lambda m: m(x, gate=gate), lambda m: m(gate=gate, x=x), lambda m: m(x), lambda m: m(x, None),
                 lambda m: m(x=x, gate=None), lambda m: m(x[0], gate[0]), lambda m: m(x[:0], gate[:0])):
        wanted = [x] if call(plain).numel() and torch.equal(call(plain), plain(x)) else [x, gate]
        got, right = (torch.autograd.grad(call(m).square().sum(), [*wanted, m.weight]) for m in (module, plain))
        for one, other in zip(got, right):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert left() == 0
    with torch.no_grad():
        assert torch.equal(module(x, gate), plain(x, gate))


def test_gradients_of_a_part():
    plain = made(NormThenGate)
    module = normjit.torch.patch(made(NormThenGate))
    for needs in ((True, False, True), (False, True, False), (False, False, True)):
        x, gate = (t.detach().requires_grad_(need) for t, need in zip(inputs(4, WIDTH), needs))
        for each in (module, plain):
            each.weight.requires_grad_(needs[2]).grad = None
        ours, theirs = module(x, gate), plain(x, gate)
        wanted = lambda m: [t for t in (x, gate, m.weight) if t.requires_grad]  # noqa: E731
        for one, other in zip(torch.autograd.grad(ours.sum(), wanted(module)), torch.autograd.grad(theirs.sum(), wanted(plain))):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", [NormThenGate, Groups])
def test_compiled(kind, left):
    torch._dynamo.reset()
    plain = made(kind)
    module = normjit.torch.patch(made(kind))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for shape in ((4, WIDTH), (2, 3, WIDTH)):
        x, gate = inputs(*shape)
        got = passes(lambda_of(compiled, module), x, gate)
        assert_near(got, [t.double() for t in passes(plain, x, gate)], 1e-5)
    assert left() == 0


@pytest.mark.parametrize("kind", [NormThenGate, Groups])
def test_compiled_with_one_tensor_as_both_and_with_what_is_written_afterwards(kind, left):
    torch._dynamo.reset()
    plain, module = made(kind), normjit.torch.patch(made(kind))

    def written(x, gate):
        h, z = x * 1, gate * 1
        return h.add_(z.mul_(module(h, z)))

    for ours, theirs, given in ((lambda x: module(x, x), lambda x: plain(x, x), inputs(4, WIDTH)[:1]),
                                (written, lambda x, gate: x + gate * plain(x, gate), inputs(4, WIDTH))):
        got = passes(lambda_of(torch.compile(ours, fullgraph=True, backend="aot_eager"), module), *given)
        assert_near(got, [t.double() for t in passes(lambda_of(theirs, plain), *given)], 1e-5)
    assert left() == 0


def lambda_of(call, module):
    class Called:
        parameters = module.parameters

        def __call__(self, *arguments):
            return call(*arguments)

    return Called()


def test_copies_and_checkpoints(left):
    module, plain = normjit.torch.patch(made(Groups)), made(Groups)
    x, gate = inputs(4, WIDTH)
    right = [t.double() for t in passes(plain, x, gate)]
    for each in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_near(passes(each, x, gate), right, 1e-5)
        again = lambda_of(lambda *t: checkpoint.checkpoint(each, *t, use_reentrant=False), each)
        assert_near(passes(again, x, gate), right, 1e-5)
    assert left() == 0
    assert normjit.torch.prepare(torch.nn.Sequential(module, normjit.torch.patch(made(GateThenNorm)))) == 2


def test_second_derivatives_and_transforms():
    module, plain = normjit.torch.patch(made(Groups, torch.float64)), made(Groups, torch.float64)
    x, gate = inputs(3, WIDTH, dtype=torch.float64)
    second = []
    for each in (module, plain):
        first = torch.autograd.grad(each(x, gate).square().sum(), (x, gate), create_graph=True)
        second.append(torch.autograd.grad(sum(g.square().sum() for g in first), (x, gate, each.weight)))
    for one, other in zip(*second):
        torch.testing.assert_close(one, other)
    of = lambda m: torch.vmap(torch.func.grad(lambda x, z: m(x, z).square().sum()))(x.detach(), gate.detach())  # noqa: E731
    torch.testing.assert_close(of(module), of(plain))


def test_mixed_types():
    """Mixed types: a bf16 gate with an f32 x, and an f32 weight with bf16 for both."""
    for types, weight in (((torch.float32, torch.bfloat16), torch.float32), ((torch.bfloat16, torch.bfloat16), torch.float32)):
        module = normjit.torch.patch(made(NormThenGate, weight))
        tensors = [t.detach().to(dtype).requires_grad_() for t, dtype in zip(inputs(6, WIDTH), types)]
        got = passes(module, *tensors)
        wide = passes(made(NormThenGate, weight).double(), *(t.detach().double().requires_grad_() for t in tensors))
        assert [g.dtype for g in got[1:]] == [*types, weight]
        assert_near(got, wide, 2e-2)


def test_calls_that_are_left():
    module = normjit.torch.patch(made(NormThenGate))
    x, gate = inputs(4, WIDTH)
    for arguments, reason in [((x, gate[:1]), r"x and its gate are of [4, 8] and [1, 8]"),
                              ((x, gate.int()), "x and weight are of"), ((x, 1.0), "its gate is float")]:
        try:
            module(*arguments)
        except (TypeError, NotImplementedError):
            pass  # silu() of integers and of a number
        assert any(reason in each for each in normjit.torch.report()["left_to_modules"]), reason
    module.weight.data, module.eps = module.weight.data * 2, 1e-2
    torch.testing.assert_close(module(x, gate), module.normed(x) * torch.nn.functional.silu(gate))
    module.forward_was = module.normed
    module.normed = lambda x: 2 * module.forward_was(x)
    module(x, gate)
    assert any("its attribute normed is not" in each for each in normjit.torch.report()["left_to_modules"])


def test_a_gate_that_is_another_function_is_left_where_x_alone_is_a_norm():
    class Maybe(Gelu):
        def forward(self, x, gate=None):
            return self.normed(x) if gate is None else super().forward(x, gate)

    (found,) = normjit.torch.found(Maybe())
    assert (found.norm, found.gated) == ("rmsnorm", None)
    module = normjit.torch.patch(Maybe())
    x, gate = inputs(4, WIDTH)
    assert torch.equal(module(x, gate), Maybe()(x, gate))
    assert "other arguments than x were given" in normjit.torch.report()["left_to_modules"]


def test_the_reason_for_x_without_a_gate():
    """Says that the gate is missing, not that there is something else than x."""
    class WithGroups(torch.nn.Module):  # mamba_ssm's
        def __init__(self):
            super().__init__()
            self.weight, self.eps, self.size = torch.nn.Parameter(torch.ones(WIDTH)), 1e-6, WIDTH // 2

        def forward(self, x, gate=None):
            of_groups = x.unflatten(-1, (-1, self.size))
            rstd = torch.rsqrt(of_groups.square().mean(-1, keepdim=True) + self.eps)
            y = (of_groups * rstd).flatten(-2) * self.weight
            return y if gate is None else y * torch.nn.functional.silu(gate)

    module, (x, gate) = normjit.torch.patch(WithGroups()), inputs(4, WIDTH)
    for each in ((x, gate), (x,)):
        torch.testing.assert_close(module(*each), WithGroups()(*each))
    assert normjit.torch.patches.calls_left(module) == {"x was given without a gate": 1}


def test_classes_of_transformers():
    """The gated norms of models, with and without groups of columns."""
    pytest.importorskip("transformers")
    import importlib

    def norm(model, name, *arguments, **named):
        module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        return getattr(module, name)(*arguments, **named)

    before, after = "gated_rmsnorm", "rmsnorm_of_gated"
    for module, wanted in [(norm("qwen3_next", "Qwen3NextRMSNormGated", 16), before),
                           (norm("qwen3_5", "Qwen3_5RMSNormGated", 16), before),
                           (norm("mamba2", "MambaRMSNormGated", 16, 16), after),
                           (norm("zamba2", "Zamba2RMSNormGated", 16, 8), after),
                           (norm("nemotron_h", "NemotronHRMSNormGated", 16, 4), after),
                           (norm("bamba", "BambaRMSNormGated", 16, 16), after),
                           (norm("falcon_h1", "FalconH1RMSNormGated", 16), before),
                           (norm("falcon_h1", "FalconH1RMSNormGated", 16, n_groups=2, norm_before_gate=False), after),
                           (norm("kimi_linear", "KimiLinearRMSNormGated", 16), before + " (sigmoid)")]:
        (found,) = normjit.torch.found(module)
        assert found.gated == wanted, found
        x, gate = inputs(2, 3, 16)
        right = [t.double() for t in passes(copy.deepcopy(module), x, gate)]
        assert_near(passes(normjit.torch.patch(module), x, gate), right, 1e-5)
