# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy transformers
"""normjit.torch.patch() on models of transformers with random weights, and on modules that look like norms but are
not."""
import copy
import io

import normjit.torch
import pytest
import torch
import transformers
from processes import run_program
from torch_cases import Served, leaf
from torch_modules import Gated, InPython, MaybeGated, Plain, Scaled, ThreeVectors

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "head_dim": 16,
    "num_key_value_heads": 2,
}
MODELS = {  # the number of norms in two layers, and how they are recognised
    "Llama": (5, {("rmsnorm", 0.0)}),
    "Qwen3": (9, {("rmsnorm", 0.0)}),  # with norms of queries and keys
    "Gemma2": (9, {("rmsnorm", 1.0)}),
}


def causal(kind):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES)
    return getattr(transformers, f"{kind}ForCausalLM")(config).train()


def gradients(model):
    model.zero_grad()
    tokens = torch.randint(0, 100, (2, 12), generator=torch.Generator().manual_seed(1))
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def assert_same(one, other):
    assert torch.equal(one[0], other[0])  # the forward pass is the model's own
    for name, gradient in one[1].items():
        scale = gradient.abs().max().clamp(min=1e-6)
        assert float((gradient - other[1][name]).abs().max() / scale) < 2e-5, name


@pytest.mark.parametrize("kind", MODELS)
def test_models(kind):
    count, kinds = MODELS[kind]
    model = causal(kind)
    before = gradients(model)
    listed = normjit.torch.found(model)
    assert len(listed) == count and {(f.norm, f.weight_offset) for f in listed} == kinds
    assert normjit.torch.patch(model) is model
    assert all(f.patched for f in normjit.torch.found(model))
    with Served(count):
        after = gradients(model)
    assert_same(before, after)
    normjit.torch.patch(model)  # patching again changes nothing
    with Served(0):
        assert_same(before, gradients(normjit.torch.unpatch(model)))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_passes(kind, dtype):
    """patch(forward=True): the forward passes are normjit's as well, and the loss changes only by rounding."""
    count, _ = MODELS[kind]
    model = causal(kind).to(dtype)
    before = gradients(model)
    normjit.torch.patch(model, forward=True)
    with Served(2 * count):
        after = gradients(model)
    steps = 30 if dtype == torch.bfloat16 else 100
    for one, other in [(before[0], after[0]), *zip(before[1].values(), after[1].values())]:
        assert (one - other).double().norm() <= steps * torch.finfo(dtype).eps * one.double().norm()
    with torch.no_grad(), Served(count):
        model(input_ids=torch.zeros(1, 3, dtype=torch.int64))
    normjit.torch.unpatch(model)
    with Served(0):
        gradients(model)


def test_forward_pass_of_torchs_layer_norm():
    model = torch.nn.Sequential(torch.nn.LayerNorm(64))
    x = leaf(1, 6, 64)
    before = model(x)
    normjit.torch.patch(model, forward=True)
    with Served(2):
        y = model(x)
        y.backward(torch.ones_like(y))
    torch.testing.assert_close(y, before)
    with torch.no_grad(), Served(0):  # not the weight's type, so the module's own forward runs
        torch.testing.assert_close(model(x.bfloat16()), torch.nn.LayerNorm.forward(model[0], x.bfloat16()))


def test_gpt2_is_served_by_enable():
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=64, n_layer=2, n_head=4, vocab_size=100, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
        )
    )
    before = gradients(model)
    with normjit.torch.enabled(), Served(5):
        after = gradients(normjit.torch.patch(model))
    assert_same(before, after)


def test_copies_and_files_of_patched_models():
    """A copy's norms read the copy's weights, and a saved model can be loaded."""
    model = normjit.torch.patch(causal("Llama"))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.model.norm.weight.mul_(2)
    x = torch.randn(2, 64)
    torch.testing.assert_close(twin.model.norm(x), 2 * model.model.norm(x))
    assert set(model.state_dict()) == set(causal("Llama").state_dict())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with Served(5):
        gradients(torch.load(file, weights_only=False))


@pytest.mark.parametrize("compiled", [False, True])
def test_patched_models_in_other_processes(compiled, tmp_path):
    """A model that was patched in another process keeps normjit's backward pass."""
    torch.save(normjit.torch.patch(torch.nn.Sequential(torch.nn.RMSNorm(64))), tmp_path / "model.pt")
    program = ["import sys, torch", "model = torch.load(sys.argv[1], weights_only=False)",
               "model = torch.compile(model, backend='aot_eager', fullgraph=True)" if compiled else "",
               "model(torch.randn(3, 64, requires_grad=True)).sum().backward()",
               "import normjit.torch; print(normjit.torch.report()['calls'])"]
    done = run_program("\n".join(program), str(tmp_path / "model.pt"))
    assert done.stdout == "1\n", done.stderr


def test_transforms_of_patched_models():
    """Gradients of each sample by torch.func."""
    model = torch.nn.Sequential(Plain(), torch.nn.Linear(8, 8), Plain())
    parameters, x = dict(model.named_parameters()), leaf(1, 5, 3, 8).detach()

    def each_samples():
        loss = lambda p, x: torch.func.functional_call(model, p, (x,)).pow(3).sum()  # noqa: E731
        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)

    wanted = each_samples()
    normjit.torch.patch(model)
    torch.testing.assert_close(each_samples(), wanted)
    torch.testing.assert_close(*(torch.func.jvp(f, (x,), (x,))[1] for f in (model, normjit.torch.unpatch(model))))


def nested():
    return torch.nested.nested_tensor([torch.ones(n, 8) for n in (3, 5)], layout=torch.jagged, requires_grad=True)


def made_in_inference():
    with torch.inference_mode():
        return torch.ones(3, 8)


@pytest.mark.parametrize("make", [nested, made_in_inference])
@pytest.mark.parametrize("forward", [False, True])
def test_inputs_that_are_left_to_the_module(make, forward):
    model = torch.nn.Sequential(InPython())
    normjit.torch.patch(model, forward=forward)
    with Served(0):
        y = model(make())
        (y.values() if y.is_nested else y).sum().backward()
    assert model[0].weight.grad is not None


@pytest.mark.parametrize("forward", [False, True])
def test_traced(forward):
    model, x = torch.nn.Sequential(Plain()), leaf(1, 3, 8)
    wanted = model(x)
    traced = torch.jit.trace(normjit.torch.patch(model, forward=forward), x)
    torch.testing.assert_close(traced(x), wanted)


def test_patched_before_there_is_memory():
    with torch.device("meta"):
        model = torch.nn.Sequential(Plain())
    normjit.torch.patch(model).to_empty(device="cpu")
    torch.nn.init.ones_(model[0].weight)
    with Served(1):
        model(leaf(1, 3, 8)).sum().backward()


class ZeroCentred(torch.nn.LayerNorm):
    """A norm like those of Nemotron."""

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, self.normalized_shape, self.weight + 1, self.bias, self.eps)


@pytest.mark.parametrize("forward", [False, True])
def test_zero_centred_layer_norm(forward):
    model, x = torch.nn.Sequential(ZeroCentred(8)), leaf(1, 3, 8)
    leaves = [x, *model.parameters()]
    wanted = torch.autograd.grad(model(x).pow(3).sum(), leaves)
    normjit.torch.patch(model, forward=forward)
    with Served(1 + forward):
        got = torch.autograd.grad(model(x).pow(3).sum(), leaves)
    torch.testing.assert_close(got, wanted)
    assert [f.weight_offset for f in normjit.torch.found(model)] == [1.0]
    assert normjit.torch.report(model, rows=4)["norms"][0][3] > 0


def test_checkpointing_and_autocast():
    model = causal("Llama")
    model.gradient_checkpointing_enable()
    before = gradients(model)
    with Served(5):
        assert_same(before, gradients(normjit.torch.patch(model)))


def test_compiled():
    model = causal("Llama")
    before = gradients(model)
    normjit.torch.patch(model, compiled=True)
    norm = torch.compile(model.model.norm, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 64, requires_grad=True)
    with Served(1):
        norm(x).sum().backward()
    assert_same(before, gradients(model))


class InPythonToo(InPython):
    def forward(self, x):
        return super().forward(x)


def test_compiled_classes_have_their_own_limits():
    """Dynamo counts the graphs of each code object; patched modules of several classes do not share one."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=1):
        for kind in (InPython, InPythonToo):
            module = torch.compile(normjit.torch.patch(kind()), backend="eager", fullgraph=True)
            with Served(1):
                module(leaf(1, 3, 8)).sum().backward()


def test_inference_is_left_alone():
    model = normjit.torch.patch(causal("Llama")).eval()
    with torch.no_grad(), Served(0):
        model(input_ids=torch.ones(1, 4, dtype=torch.long))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("eps", [None, 1e-5])
def test_torchs_rms_norm(dtype, eps):
    """With such small inputs, the value of the default eps matters."""
    model = torch.nn.Sequential(torch.nn.RMSNorm(64, eps=eps)).to(dtype)
    x = leaf(1, 5, 64, dtype=torch.float64).detach().mul(3e-4).to(dtype).requires_grad_()
    dy = leaf(2, 5, 64, dtype=dtype).detach()
    (right,) = torch.autograd.grad(
        model.double()(x.double()) if eps else model.to(dtype)(x), x, dy.double() if eps else dy
    )
    normjit.torch.patch(model.to(dtype))
    with Served(1):
        (got,) = torch.autograd.grad(model(x), x, dy)
    step = 2.0**-6 if dtype == torch.bfloat16 else 1e-5
    assert float((got - right).double().abs().max() / right.double().abs().max()) < step


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("eps", [0.3, None])
def test_eps_that_changes(forward, eps):
    """patch() keeps no copy of eps."""
    plain, model = torch.nn.RMSNorm(64, eps=1e-5), torch.nn.Sequential(torch.nn.RMSNorm(64, eps=1e-5))
    normjit.torch.patch(model, forward=forward)
    plain.eps = model[0].eps = eps
    x, dy = leaf(1, 5, 64), leaf(2, 5, 64).detach()
    with Served(1 + forward):
        y = model(x)
        (got,) = torch.autograd.grad(y, x, dy)
    torch.testing.assert_close(y, plain(x))
    torch.testing.assert_close(got, torch.autograd.grad(plain(x), x, dy)[0])


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("dtype, weight_dtype", [(torch.float64, torch.float32), (torch.float32, torch.float64)])
def test_f64_beside_other_types(dtype, weight_dtype, forward):
    """This works even if the module promotes its output, and with it the incoming gradient."""
    plain = InPython().to(weight_dtype)
    x = leaf(1, 5, 8, dtype=dtype)
    dy = leaf(2, 5, 8, dtype=torch.float64).detach()
    wanted = torch.autograd.grad(plain(x), (x, plain.weight), dy)
    normjit.torch.patch(torch.nn.Sequential(plain), forward=forward)
    with Served(1):
        y = plain(x)
        got = torch.autograd.grad(y, (x, plain.weight), dy)
    assert y.dtype == torch.float64
    for one, other in zip(got, wanted):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_forward_mode():
    plain, ad = Plain(), torch.autograd.forward_ad
    model = normjit.torch.patch(torch.nn.Sequential(copy.deepcopy(plain)))
    x, dx = leaf(1, 5, 8).detach(), leaf(2, 5, 8).detach()
    with ad.dual_level():
        got, wanted = (ad.unpack_dual(f(ad.make_dual(x, dx))).tangent for f in (model, plain))
    torch.testing.assert_close(got, wanted)


REFUSED = {
    Gated: "takes no [.., N] alone: TypeError",
    Scaled: "computes neither LayerNorm nor RMSNorm",
    ThreeVectors: "its parameters are bias, v, weight; known: a weight, or a weight and a bias",
    lambda: torch.nn.LayerNorm(8, elementwise_affine=False): "it has no weight",
    lambda: torch.nn.BatchNorm1d(8): "",
    lambda: torch.nn.GroupNorm(1, 8): "",
    lambda: torch.nn.PReLU(8): "it has no eps",
}


@pytest.mark.parametrize("make", REFUSED)
def test_what_is_no_norm(make):
    model = torch.nn.Sequential(make())
    (found,) = normjit.torch.found(model)
    assert found.norm is None and REFUSED[make] in found.reason
    with pytest.raises(normjit.InvalidArgument, match="no norm that normjit knows"):
        normjit.torch.patch(model)


def test_other_arguments_go_to_the_module():
    """A norm that may take a gate is an ordinary norm if it is called without one."""
    norm, x, gate = MaybeGated(), leaf(1, 3, 8), leaf(2, 3, 8)
    wanted = torch.autograd.grad(norm(x, gate).sum(), gate)
    normjit.torch.patch(torch.nn.Sequential(norm))
    with Served(1):
        norm(x).sum().backward()
    with Served(0):
        assert torch.equal(*wanted, *torch.autograd.grad(norm(x, gate).sum(), gate))


def test_others_patches_are_kept():
    norm = Plain()
    norm.forward = lambda x: x
    model = torch.nn.Sequential(norm, Plain())
    normjit.torch.patch(model)
    assert [f.patched for f in normjit.torch.found(model)] == [False, True]
    assert "replaced by another's" in normjit.torch.found(model)[0].reason


def test_probing_leaves_no_trace():
    model, state = torch.nn.Sequential(Plain(), torch.nn.BatchNorm1d(8)), torch.get_rng_state()
    running = model[1].running_mean.clone()
    normjit.torch.found(model)
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(model[1].running_mean, running)
    assert all(p.grad is None and bool((p == p.detach().round()).all()) for p in model.parameters())
