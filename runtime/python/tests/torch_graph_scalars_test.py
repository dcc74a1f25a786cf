# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Graphs with tensors of one element that go into every row, and with tensors that are expanded."""
import normjit.torch
import pytest
import torch
from functorch.compile import make_boxed_func
from graph_models import Model, Rewritten, assert_near, rms
from normjit.torch import graph, graph_costs, graph_operator

FUNCTIONS = {  # each with the axes of its forward kernel's inputs
    "eps": (lambda m, x: rms(x, m.weight, m.eps), ["M,N", "", "N"]),
    "a factor": (lambda m, x: rms(torch.tanh(m.alpha * x), m.weight, m.eps), ["", "", "M,N", "N"]),
    "a factor of each sample's rows": (lambda m, x: m.plain(x * m.alpha) * x[:, :1].exp(), ["S,M,N", "", "S,N"]),
}


@pytest.fixture(autouse=True)
def alone():
    torch._dynamo.reset()
    graph._reported.clear()
    torch.manual_seed(0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalars_are_inputs_of_kernels(name):
    """With dynamic=True a number of a module, such as eps, is an input of the graph."""
    function, axes = FUNCTIONS[name]
    model, x = Model(function).double(), torch.randn(3, 5, 16, dtype=torch.float64, requires_grad=True)
    model.eps, model.alpha = 1e-3, torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    inputs = [x, model.weight if name == "eps" else model.alpha]
    compiled = torch.compile(model, backend=Rewritten(), dynamic=True)
    got, wanted = (torch.autograd.grad(call(x).square().sum(), inputs) for call in (compiled, model))
    torch.testing.assert_close(got, wanted)
    assert axes_of_inputs(normjit.torch.graph_report()[0]) == axes


def test_numbers_among_the_inputs_of_compiled_autograd():
    """The first call of a row-wise function is compared with the function, whose 2 is an input of the graph that compiled
    autograd makes."""
    x = torch.randn(3, 16, requires_grad=True)
    softmax = normjit.torch.rowwise(lambda x: torch.softmax(x, -1) * 2)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="normjit", options={"normjit.take": "all"})):
        got = torch.autograd.grad(softmax(x).square().sum(), x)
    torch.testing.assert_close(got, torch.autograd.grad((torch.softmax(x, -1) * 2).square().sum(), x))
    assert [facts for facts in normjit.torch.graph_report() if facts["taken"] and "" in axes_of_inputs(facts)]


def axes_of_inputs(facts):
    header = facts["formula"].partition(" -> ")[0]
    return [each.partition("[")[2] for each in header.split("]")[:-1]]


class AsOnGpu(Rewritten):
    """Rewrites graphs whose metadata say that all tensors are on a GPU, except those without dimensions, and runs the
    graphs on the CPU."""

    def _compile(self, module, inputs):
        for node in module.graph.nodes:
            made = node.meta.get("val")
            if isinstance(made, torch.Tensor) and made.dim() > 0:
                node.meta["val"] = made.new_empty_strided(made.shape, made.stride(), device="cuda")
        super()._compile(module, inputs)
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.full.default):
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
        module.recompile()
        return make_boxed_func(module.forward)


@pytest.fixture
def gpu(monkeypatch):
    """Serves GPUs with the kernels of this CPU, and predicts times from bytes."""
    makes = graph_operator.make
    monkeypatch.setattr(graph, "_why_not", lambda device: None)
    monkeypatch.setattr(graph_operator, "make", lambda wanted: makes(wanted._replace(device=torch.device("cpu"))))
    monkeypatch.setattr(graph_costs.Machine, "inductor_seconds", lambda self, moved, dtype: moved.bytes / 1e9)
    monkeypatch.setattr(graph_costs.Machine, "copy_seconds", lambda self, moved: moved / 1e9)
    monkeypatch.setattr(graph_costs.Machine, "normjit_seconds", lambda self, region, by: 0.0)


def two_norms(m, x):
    return rms(m.linear(rms(x, m.weight, m.eps)), m.weight, m.eps) * m.scale


ON_GPU = {  # each with its forward graph's regions, and its scalars that are moved to the GPU
    "eps": (lambda m, x: rms(x, m.weight, m.eps), 1, 1),
    "eps and a factor": (lambda m, x: rms(x, m.weight, m.eps) * m.scale, 1, 2),
    "eps of two norms": (two_norms, 2, 2),
    "a factor outside": (lambda m, x: m.linear(rms(x, m.weight, m.eps)) * m.scale, 1, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ON_GPU)
def test_scalars_in_the_hosts_memory_are_moved_for_kernels_on_a_gpu(gpu, name, dtype):
    function, regions, scalars = ON_GPU[name]
    model, x = Model(function).to(dtype), torch.randn(3, 5, 16, dtype=dtype, requires_grad=True)
    model.eps, model.scale = 1e-3, 0.75
    backend = AsOnGpu()
    inputs = [x, model.weight]
    compiled = torch.compile(model, backend=backend, dynamic=True)
    got, wanted = (torch.autograd.grad(call(x).square().sum(), inputs) for call in (compiled, model))
    assert_near(got, wanted, 0.02 if dtype == torch.bfloat16 else 1e-5)

    taken = backend.graphs[0].graph.find_nodes(op="call_function", target=torch.ops.normjit.region.default)
    assert len(taken) == regions
    assert {each.meta["val"].device.type for node in taken for each in node.args[2]} == {"cuda"}
    left = {str(node.target) for node in backend.graphs[0].graph.nodes if node.op == "call_function"}
    assert not left.intersection({"aten.mean.dim", "aten.rsqrt.default"})
    moved = [node for node in backend.graphs[0].graph.nodes if node.op == "call_function" and
             node.target is torch.ops.aten.mul.Tensor and node.meta["val"].dim() == 0]
    assert len(moved) == scalars
    for node in backend.graphs[0].graph.nodes:  # what no region has reads its scalar as before
        assert node in taken or not set(moved).intersection(node.all_input_nodes)


EXPANDED = {  # functions with gradients whose graphs expand a scalar or an element of each row along the columns
    "the sum of all elements": lambda m, x, rows: rms(x, m.weight).sum(),
    "the mean of all elements": lambda m, x, rows: rms(x, m.weight).mean(),
    "the sum of layer_norm": lambda m, x, rows: m.layer_norm(x).sum(),  # sums of the scalar are gradients of weight and bias
    "the mean of all elements of layer_norm": lambda m, x, rows: -m.plain(m.layer_norm(x)).mean(),
    "the mean of each row": lambda m, x, rows: rms(x, m.weight).mean(-1),
    "factors of rows": lambda m, x, rows: rms(x * rows.expand(x.shape), m.weight),
}


# With dynamic=True the mean of all elements divides by a number that the formula cannot know.
@pytest.mark.parametrize("name, dynamic", [(name, dynamic) for dynamic in (False, True) for name in EXPANDED
                                           if not (dynamic and name.startswith("the mean of all"))])
def test_elements_that_repeat_along_columns_are_inputs_of_kernels(name, dynamic):
    model = Model(lambda m, given: EXPANDED[name](m, *given)).double()
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 5, 16), (3, 5, 1))]
    backend = Rewritten()
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    inputs = given if "rows" in name else given[:1]
    got, wanted = (torch.autograd.grad(call(given).sum(), [*inputs, *model.parameters()], allow_unused=True) for call in (compiled, model))
    torch.testing.assert_close(got, wanted)
    assert len(backend.graphs) == 2
    assert not {"aten.mul.Tensor", "aten.div.Scalar", "aten.expand.default"}.intersection(backend.targets())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(3, 1, 16), (5, 16), (16,)])
def test_rows_that_repeat_are_not_copied(shape, dynamic):
    model = Model(lambda m, x: rms(x.expand(3, 5, 16), m.weight)).double()
    x = torch.randn(shape, dtype=torch.float64)
    backend = Rewritten()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend, dynamic=dynamic)(x), model(x))
    (call,) = backend.graphs[0].graph.find_nodes(op="call_function", target=torch.ops.normjit.region.default)
    assert any(0 in node.meta["val"].stride() for node in call.args[2])
    assert set(backend.targets()) == {"aten.expand.default", "normjit.region.default", "<built-in function getitem>"}
