# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""patch() in unusual conditions: other shapes, copies, hooks, modes and default types."""
import concurrent.futures
import copy
import io
import pickle

import normjit.torch
import pytest
import torch
from processes import run_program
from torch_cases import Served, leaf, passes
from torch_gates import NormThenGate
from torch_impostors import ChannelsOfImages
from torch_modules import InPython, MaybeGated, Plain, Scaled


class Sized(torch.nn.Module):
    """RMSNorm of any size, by broadcasting."""

    def __init__(self, size):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.randn(size)), 1e-6

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("size, shape", [(1, (64, 4096)), (4096, (64, 1)), (8, (8, 1)), (1, (1,))])
def test_broadcasts_are_the_modules_own(size, shape, forward):
    plain, x = Sized(size), leaf(1, *shape)
    module = normjit.torch.patch(copy.deepcopy(plain), forward=forward)
    served = shape[-1] == size
    with Served((1 + forward) * served):
        got = passes(module, x)
    for one, other in zip(got, passes(plain, x)):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4) if served else torch.equal(one, other)
    assert served or f"{list(shape)} and [{size}]" in normjit.torch.report(module)["norms"][0][2]


class Flattened(InPython):
    def forward(self, x):
        return super().forward(x.reshape(-1, x.shape[-1])).view(x.shape)


class FlattenedWithGate(NormThenGate):
    def forward(self, x, gate):
        return super().forward(x.flatten(0, -2), gate.flatten(0, -2)).view(x.shape)


@pytest.mark.parametrize("make", [Flattened, FlattenedWithGate])
def test_results_can_be_written_to(make):
    """An output that is a view can be written to, as without patch()."""
    module = make()
    inputs = [leaf(i, 2, 3, module.weight.shape[0]) for i in range(1 + (make is FlattenedWithGate))]
    wanted = torch.autograd.grad(module(*inputs).mul_(3).sum(), inputs)
    normjit.torch.patch(module)
    left = normjit.torch.report()["left_to_modules"]
    torch.testing.assert_close(torch.autograd.grad(module(*inputs).mul_(3).sum(), inputs), wanted)
    assert normjit.torch.report()["left_to_modules"] == left


@pytest.mark.parametrize("width", [6, 8, 16])
def test_images(width):
    """Norms over channels, by permuting, are refused, or left to the module for other widths."""
    plain = ChannelsOfImages(8)
    module = normjit.torch.patch(copy.deepcopy(plain), forward=True, strict=False)
    for one, other in zip(passes(module, leaf(1, 2, 8, 5, width)), passes(plain, leaf(1, 2, 8, 5, width))):
        assert torch.equal(one, other)


def test_calls_with_other_arguments_are_counted():
    module = normjit.torch.patch(MaybeGated())
    x = leaf(1, 3, 8)
    with Served(0):
        module(x, x).sum().backward()
        module(x=x, gate=x).sum().backward()
    with Served(2):
        module(x=x).sum().backward()
        module(x, gate=None).sum().backward()
    assert normjit.torch.report(module)["norms"] == [
        ("", "MaybeGated", "normjit's, by patch(), but 2 calls were left to its own forward: other arguments than x were "
         "given")]


def weights_doubled(module):
    module._parameters = dict(module._parameters)  # shallow copies share it with the original
    module.weight = torch.nn.Parameter(2 * module.weight.detach())


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("copied", [
    copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)),
    lambda module: module._replicate_for_data_parallel()])
def test_copies(copied, forward):
    """Copies compute with their own weights, and are patched and unpatched separately."""
    module = normjit.torch.patch(torch.nn.RMSNorm(8), forward=forward)
    twin, x = copied(module), leaf(1, 3, 8)
    if not list(twin.parameters()):  # the weights of DataParallel's replicas are not leaves
        twin.weight = 2 * module.weight
    else:
        weights_doubled(twin)
    with Served(2 * (1 + forward)):
        y, dx = module(x), torch.autograd.grad(module(x).sum(), x)[0]
        y.sum().backward()
    with Served(1 + forward):
        y_of_twin = twin(x)
        torch.testing.assert_close(torch.autograd.grad(y_of_twin.sum(), x)[0], 2 * dx)
    torch.testing.assert_close(y_of_twin, 2 * y)
    normjit.torch.unpatch(twin)
    assert type(twin) is torch.nn.RMSNorm
    with Served(0):
        twin(x).sum().backward()
    with Served(1 + forward):
        module(x).sum().backward()


def test_other_class():
    module = normjit.torch.patch(InPython())
    module.__class__ = Scaled
    x = leaf(1, 3, 8)
    with Served(0):
        assert torch.equal(module(x), x * module.weight)
        assert torch.equal(torch.autograd.grad(module(x).sum(), x)[0], module.weight.detach().expand(3, 8))
    assert normjit.torch.found(module)[0].reason == "computes neither LayerNorm nor RMSNorm"


def test_class_of_patched_modules():
    """To all code that asks, the class looks like the module's own."""
    module = normjit.torch.patch(torch.nn.RMSNorm(8))
    assert isinstance(module, torch.nn.RMSNorm) and repr(module) == repr(torch.nn.RMSNorm(8))
    assert type(module).__name__ == "RMSNorm" and type(module).__module__ == torch.nn.RMSNorm.__module__
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    assert list(module.state_dict()) == ["weight"]


class Registered(Plain):
    kinds = []

    def __init_subclass__(cls, tag, **named):
        Registered.kinds.append(tag)


def test_registers_of_classes():
    """A class that keeps a list of its subclasses does not see normjit's."""
    module = normjit.torch.patch(Registered())
    assert Registered.kinds == []
    with Served(1):
        module(leaf(1, 3, 8)).sum().backward()


def test_hooks_are_not_run():
    module, calls = Plain(), []
    hook = lambda *_: calls.append(1)  # noqa: E731
    module.register_forward_hook(hook), module.register_forward_pre_hook(hook), module.register_full_backward_hook(hook)
    module.weight.register_hook(hook)
    handles = [torch.nn.modules.module.register_module_forward_hook(hook),
               torch.nn.modules.module.register_module_forward_pre_hook(hook)]
    try:
        normjit.torch.found(module)
        normjit.torch.unpatch(normjit.torch.patch(module))
        assert not calls
    finally:
        [handle.remove() for handle in handles]
    normjit.torch.patch(module)
    module(leaf(1, 3, 8)).sum().backward()
    assert len(calls) == 4


AMBIENT = {
    "meta": lambda: torch.device("meta"),
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "fake": lambda: torch._subclasses.FakeTensorMode(),
    "saved": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t),
}


@pytest.mark.parametrize("around", AMBIENT)
def test_ambient_state(around):
    plain = torch.nn.Sequential(torch.nn.RMSNorm(8), torch.nn.LayerNorm(8))
    with AMBIENT[around]():
        model = torch.nn.Sequential(torch.nn.RMSNorm(8), torch.nn.LayerNorm(8))
        for each in (plain, model):
            assert [f.norm for f in normjit.torch.found(each)] == ["rmsnorm", "layernorm"]
            normjit.torch.patch(each)
    with Served(1):
        plain[0](leaf(1, 3, 8)).sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_default_type(dtype):
    torch.set_default_dtype(dtype)
    try:
        model = torch.nn.Sequential(torch.nn.RMSNorm(8), Plain(), torch.nn.LayerNorm(8))
        assert all(f.norm for f in normjit.torch.found(model))
    finally:
        torch.set_default_dtype(torch.float32)


def test_default_device():
    torch.set_default_device("meta")
    try:
        assert normjit.torch.found(torch.nn.RMSNorm(8))[0].norm == "rmsnorm"
    finally:
        torch.set_default_device(None)


class WithState(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.table = {"a": 1}


def test_probing_leaves_no_trace():
    module, state = WithState(), torch.get_rng_state()
    before = {**vars(module)}
    normjit.torch.found(module)
    assert normjit.torch.found(module)[0].norm == "rmsnorm"
    assert vars(module) == before and torch.is_grad_enabled() and torch.equal(torch.get_rng_state(), state)
    assert module.weight.grad is None and torch.equal(module.weight, torch.ones(8))


def test_no_module():
    for function in (normjit.torch.patch, normjit.torch.unpatch, normjit.torch.found, normjit.torch.prepare):
        for model in ([1], None, torch.ones(2), torch.nn.RMSNorm):
            with pytest.raises(normjit.InvalidArgument, match="model: is .*; must be a torch.nn.Module"):
                function(model)


@pytest.mark.parametrize("options, message", [
    ({"rows": "many"}, "rows: 'many'; must be an int of at least 1"), ({"rows": 0}, "rows: 0; must be"),
    ({"rows": 2.0}, "rows: 2.0; must be"),
    ({"rows": 2, "dtype": torch.int32}, "dtype: torch.int32; allowed: None, torch.float32"),
    ({"rows": 2, "dtype": "float32"}, "dtype: 'float32'; allowed: None, torch.float32")])
def test_report_and_prepare_refuse_what_they_cannot_use(options, message):
    model = normjit.torch.patch(Plain())
    with pytest.raises(normjit.InvalidArgument, match=f"^{message}"):
        normjit.torch.report(model, **options)
    if "dtype" in options:
        with pytest.raises(normjit.InvalidArgument, match=f"^{message}"):
            normjit.torch.prepare(model, dtype=options["dtype"])


def test_not_strict():
    model = torch.nn.Linear(2, 2)
    assert normjit.torch.patch(model, strict=False) is model
    with pytest.raises(normjit.InvalidArgument, match="no norm that normjit knows"):
        normjit.torch.patch(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("make", [InPython, Plain, torch.nn.LayerNorm])
def test_verify(make, dtype):
    module = (make(8) if make is torch.nn.LayerNorm else make()).to(dtype)
    normjit.torch.patch(module, forward=make is torch.nn.LayerNorm, verify=True)
    calls = normjit.torch.report()["calls"]
    module(leaf(1, 300, 8, dtype=dtype)).square().sum().backward()
    verified = normjit.torch.report()["calls"] - calls
    module(leaf(1, 300, 8, dtype=dtype)).square().sum().backward()
    assert normjit.torch.report()["calls"] - calls - verified < verified  # once


class BeyondRows(InPython):
    """x itself decides what this computes, which trials with random values cannot detect."""

    def forward(self, x):
        return x if float(x.detach().flatten()[0]) == 1234.0 else super().forward(x)


def test_verify_raises():
    module, x = normjit.torch.patch(BeyondRows(), verify=True), leaf(1, 3, 8).detach()
    x[0, 0] = 1234.0
    with pytest.raises(normjit.Error, match=r"the model \(BeyondRows\): the gradient of x differs from"):
        module(x.requires_grad_()).sum().backward()


def test_verify_of_a_weight_that_is_gathered_for_each_pass():
    """Imitates FSDP2, which frees the weight after the forward pass and gathers it when the gradient of y arrives."""
    module = normjit.torch.patch(InPython(), verify=True)
    kept = module.weight.detach().clone()
    y = module(leaf(1, 3, 8))
    module.weight.data.fill_(float("nan"))
    y.register_hook(lambda dy: (module.weight.data.copy_(kept), None)[1])
    y.pow(3).sum().backward()
    assert module.weight.grad.isfinite().all()


class LazyLayerNorm(torch.nn.modules.lazy.LazyModuleMixin, torch.nn.LayerNorm):
    """Gets its size at its first call."""

    cls_to_become = torch.nn.LayerNorm

    def __init__(self):
        super().__init__(0)
        self.weight, self.bias = torch.nn.UninitializedParameter(), torch.nn.UninitializedParameter()

    def initialize_parameters(self, x):
        self.normalized_shape = (x.shape[-1],)
        for parameter in (self.weight, self.bias):
            parameter.materialize(self.normalized_shape)
        self.reset_parameters()


def test_lazy_modules():
    model = torch.nn.Sequential(torch.nn.LazyLinear(8), InPython(), LazyLayerNorm())
    normjit.torch.patch(model, forward=True)
    assert "has no shape" in normjit.torch.found(model)[1].reason
    with Served(2):
        model(leaf(1, 3, 5)).sum().backward()
    normjit.torch.patch(model, forward=True)
    assert all(each.patched for each in normjit.torch.found(model))


FULLY_SHARDED = """
import copy, os, sys, torch, normjit.torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
rank, world, file, forward, own = int(sys.argv[1]), 2, sys.argv[2], sys.argv[3] == "True", sys.argv[4] == "True"
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
torch.manual_seed(0)
plain = torch.nn.Sequential(torch.nn.RMSNorm(9), torch.nn.Linear(9, 9), torch.nn.RMSNorm(9, eps=1e-6))
model, x = copy.deepcopy(plain), torch.randn(4, 9)
if own:
    fully_shard(model[0])
fully_shard(model)
assert all(isinstance(p, DTensor) for p in model.parameters())
assert [f.norm for f in normjit.torch.found(model)] == ["rmsnorm"] * 2
normjit.torch.patch(model, forward=forward)
plain(x).pow(3).sum().backward()
model(x).pow(3).sum().backward()
for one, other in zip(model.parameters(), plain.parameters()):
    torch.testing.assert_close(one.grad.full_tensor(), other.grad, rtol=1e-4, atol=1e-4)
calls = normjit.torch.report(model)
assert calls["calls"] == 2 * (1 + forward) and calls["left_to_modules"] == {}, calls
normjit.torch.unpatch(model)
model(x).pow(3).sum().backward()
assert normjit.torch.report()["calls"] == calls["calls"]
distributed.destroy_process_group()
os._exit(0)  # the threads of FSDP and gloo may end a process whose interpreter is being finalised: "terminate called"
"""


@pytest.mark.parametrize("forward, own", [(False, False), (True, True)])
def test_after_fully_shard(forward, own, tmp_path):
    """FSDP2's parameters are DTensors. With `own`, a norm is sharded separately, so its class is FSDP's."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda rank: run_program(FULLY_SHARDED, str(rank), str(tmp_path / "store"), str(forward),
                                                      str(own)), range(2)))
    assert [each.returncode for each in done] == [0, 0], done[0].stderr + done[1].stderr


def test_empty_weights():
    """Imitates FSDP1 or ZeRO, which keep the parameters elsewhere."""
    (found,) = normjit.torch.found(Sized(0))
    assert "call patch() before" in found.reason
