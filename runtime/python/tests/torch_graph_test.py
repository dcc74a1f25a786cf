# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""torch.compile(backend="normjit"): the regions of forward and backward graphs, compared with eager mode in double
precision; which regions are taken; and the modes of torch.compile."""
import importlib.metadata
import sys

import normjit.torch
import pytest
import torch
import torch.distributed.fsdp
from graph_models import COLS, MODELS, Rewritten, alone, assert_near, made, random_model, results  # noqa: F401
from normjit.torch import graph, graph_costs, graph_operator, graph_times
from normjit.torch.graph_regions import Region
from rounds import rounds
from torch.distributed.tensor import DTensor
from torch.utils import checkpoint

torch._inductor.config.compile_threads = 1


@pytest.mark.parametrize("name", MODELS)
def test_regions_compute_what_eager_mode_does(name):
    model, x = made(MODELS[name])
    backend = Rewritten()
    assert_near(results(torch.compile(model, backend=backend, fullgraph=True), model, x), results(model, model, x), 1e-12)
    taken = [each for each in normjit.torch.graph_report() if each["taken"]]
    assert len(taken) >= 2 and all(each["calls"] == 1 for each in taken)
    assert sum("normjit.region" in each for each in backend.targets()) == len(taken)
    assert not any("Error" in each["why"] for each in normjit.torch.graph_report())


@pytest.mark.parametrize("name", ["llama", "modulated", "gated"])
def test_nothing_of_a_norm_is_left(name):
    """Residuals, gates, casts, per-sample factors and the sums over rows are parts of the regions."""
    model, x = made(MODELS[name])
    backend = Rewritten()
    results(torch.compile(model, backend=backend), model, x)
    names = {"aten.mean.dim", "aten.var_mean.correction", "aten.pow.Tensor_Scalar", "aten.rsqrt.default", "aten.sub.Tensor",
             "aten.mul.Tensor", "aten.exp.default", "aten.sigmoid.default"}
    assert not names.intersection(backend.targets())


@pytest.mark.parametrize("name", MODELS)
def test_graphs_without_taken_regions_are_as_they_were(name, monkeypatch):
    monkeypatch.setattr(graph_costs.Machine, "normjit_seconds", lambda *_: 1.0)
    found = []
    for take in ("none", "faster"):
        model, x = made(MODELS[name])
        torch._dynamo.reset()
        backend = Rewritten(take)
        results(torch.compile(model, backend=backend), model, x)
        for module in backend.graphs:
            place = {node: i for i, node in enumerate(module.graph.nodes)}
            found.append([(node.op, node.target, str(torch.fx.node.map_arg((node.args, node.kwargs), place.get)),
                           str(node.meta.get("val"))) for node in place])
    assert found[:2] == found[2:] and len(found) == 4


@pytest.mark.parametrize("seed", [*range(rounds(8)), 12, 21])
def test_random_models(seed):
    model, x = made(random_model(seed))
    got = results(torch.compile(model, backend=Rewritten(), fullgraph=True), model, x)
    assert_near(got, results(model, model, x), 1e-10)
    assert not any("Error" in each["why"] for each in normjit.torch.graph_report())


def test_rows_may_change_without_another_graph():
    model, _ = made(MODELS["llama"])
    backend = Rewritten()
    compiled = torch.compile(model, backend=backend, dynamic=True, fullgraph=True)
    for shape in ((3, 5, COLS), (7, 2, COLS), (2, 33, COLS)):
        x = torch.randn(shape, dtype=torch.float64)
        assert_near(results(compiled, model, x), results(model, model, x), 1e-12)
    assert len(backend.graphs) == 2 and all(each["calls"] == 3 for each in normjit.torch.graph_report() if each["taken"])


def test_autocast_checkpoints_and_graph_breaks():
    def checkpointed(m, x):
        h = checkpoint.checkpoint(MODELS["block"], m, x, use_reentrant=False)
        torch._dynamo.graph_break()
        return MODELS["llama"](m, h)

    model, x = made(checkpointed, torch.float32)
    compiled = torch.compile(model, backend=Rewritten())
    assert_near(results(compiled, model, x), results(model, model, x), 1e-5)
    autocast = lambda: torch.autocast("cpu", torch.bfloat16)  # noqa: E731
    assert_near(results(compiled, model, x, autocast), results(model, model, x, autocast), 0.02)
    assert {each["why"] for each in normjit.torch.graph_report() if each["taken"]} == {"all are to be taken"}


def test_inductor_compiles_what_is_left():
    """Tests everything in bf16: first with the backend by its name, and then with the pass in Inductor's own backend,
    after a pass of the user."""
    model, x = made(MODELS["block"], torch.bfloat16, (32, COLS))
    wanted = results(model.double(), model, x.double())
    model.bfloat16()
    got = results(torch.compile(model, backend="normjit", options={"normjit.take": "all"}, fullgraph=True), model, x)
    assert_near([each.double() for each in got], wanted, 0.02)
    taken = [each for each in normjit.torch.graph_report() if each["taken"]]
    assert len(taken) >= 3 and all(each["calls"] == 1 for each in taken)

    seen = []
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        rewriting = normjit.torch.GraphPass("all", after=seen.append)
        again = results(torch.compile(model, options={"post_grad_custom_pre_pass": rewriting}), model, x)
    assert len(seen) == 2 and rewriting.uuid() is None
    assert_near(again, got, 0)
    assert all(each["calls"] == 2 for each in normjit.torch.graph_report() if each["taken"])


def test_graphs_from_the_cache(monkeypatch, tmp_path):
    """A graph from Inductor's cache calls the same kernels. A graph that was compiled for other regions is not taken
    from the cache."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, x = made(MODELS["gated"], torch.float32)
    wanted = results(model, model, x)
    for take, is_cached in (("all", False), ("none", False), ("all", True)):
        torch._dynamo.reset()
        graph._reported.clear()
        graph_operator.calls.clear()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(model, backend="normjit", options={"normjit.take": take})
        assert_near(results(compiled, model, x), wanted, 1e-5)
        assert bool(torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]) == is_cached
        report = normjit.torch.graph_report()
        assert len(report) == (0 if take == "none" else 2) and all(each["calls"] == 1 for each in report)
        assert all((each["why"] == "in a graph from the cache") == is_cached for each in report)


@pytest.fixture
def one_rank(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_ddp_and_fsdp2(one_rank):
    model, x = made(MODELS["llama"], torch.float32)
    wanted = results(model, model, x)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    assert_near(results(torch.compile(parallel, backend=Rewritten()), model, x), wanted, 1e-5)
    sharded = torch.distributed.fsdp.fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
    sharded.compile(backend=Rewritten())
    got = results(sharded, sharded, x)
    assert_near([each.full_tensor() if isinstance(each, DTensor) else each for each in got], wanted, 1e-5)
    assert sum(each["taken"] for each in normjit.torch.graph_report()) >= 4


def predicted(monkeypatch, seconds_of_kernel):
    """Returns the report for a machine of 1 GB/s, on which kernels start without delay and normjit's take the given
    time."""
    monkeypatch.setattr(graph_costs.Machine, "inductor_seconds", lambda self, moved, dtype: moved.bytes / 1e9)
    monkeypatch.setattr(graph_costs.Machine, "copy_seconds", lambda self, moved: moved / 1e9)
    monkeypatch.setattr(graph_costs.Machine, "normjit_seconds", lambda self, region, by: seconds_of_kernel(region, by))
    model, x = made(MODELS["block"], torch.float32, (64, COLS))
    results(torch.compile(model, backend=Rewritten("faster")), model, x)
    return normjit.torch.graph_report()


def test_regions_are_taken_where_that_is_faster(monkeypatch):
    """If all kernels reach the bandwidth, the bytes decide: normjit's backward passes read their matrices once, and not
    again for the sums over rows."""
    report = predicted(monkeypatch, lambda region, by: sum(map(graph_costs._bytes, (*by.inputs, *by.outputs))) / 1e9)
    taken = [each for each in report if each["taken"]]
    assert taken and all(each["bytes"][0] < graph_costs.CLEARLY * each["bytes"][1] for each in taken)
    assert all(each["seconds"][0] == pytest.approx(each["bytes"][0] / 1e9) for each in taken)
    assert all("col_sum" in each["formula"] for each in taken)
    left = [each for each in report if not each["taken"]]
    assert left and all(each["bytes"][0] >= graph_costs.CLEARLY * each["bytes"][1] and "not lower" in each["why"] for each in left)


def test_regions_are_left_where_kernels_take_long(monkeypatch):
    report = predicted(monkeypatch, lambda region, by: 1)
    assert report and not any(each["taken"] for each in report)


def test_no_kernel_is_made_where_even_a_copy_is_too_slow(monkeypatch):
    monkeypatch.setattr(graph_costs.Machine, "copy_seconds", lambda *_: 1.0)
    monkeypatch.setattr(graph_operator, "make", None)
    model, x = made(MODELS["block"], torch.float32, (64, COLS))
    results(torch.compile(model, backend=Rewritten("faster")), model, x)
    report = normjit.torch.graph_report()
    assert report and all("not lower" in each["why"] and each["seconds"][0] >= 1 for each in report)


def test_times_are_measured():
    assert 1e7 < graph_times.bandwidth(torch.device("cpu"), 1 << 20) < 1e13
    model, x = made(MODELS["modulated"], torch.float32)
    results(torch.compile(model, backend=Rewritten()), model, x)
    report = [each for each in normjit.torch.graph_report() if each["taken"]]
    assert report and all(0 < seconds < 1 for each in report for seconds in each["seconds"])
    assert all(each["calls"] == 1 for each in report)


def test_nested_tensors_are_compiled():
    norm = torch.nn.LayerNorm(64)
    nested = torch.nested.nested_tensor([torch.randn(3, 64), torch.randn(5, 64)], layout=torch.jagged)
    torch.testing.assert_close(torch.compile(norm, backend="normjit")(nested).values(), norm(nested).values())


def test_parts_of_a_region_get_kernels_where_the_whole_has_none(monkeypatch):
    makes = graph_operator.make

    def make(wanted):
        if wanted.spec.count("col_sum") > 1:
            raise normjit.InvalidArgument("only one sum over rows")
        makes(wanted)

    monkeypatch.setattr(graph_operator, "make", make)
    model, x = made(MODELS["flattened"])
    got = results(torch.compile(model, backend=Rewritten()), model, x)
    assert_near(got, results(model, model, x), 1e-12)
    assert sum(each["taken"] and each["formula"].count("col_sum") == 1 for each in normjit.torch.graph_report()) == 1


def test_kernels_are_made_ahead(monkeypatch):
    ahead, makes, makes_ahead = [], graph_operator.make, graph_operator.make_ahead

    def make_ahead(wanted):
        ahead.extend(each for each in wanted if each is not None)
        makes_ahead(ahead)

    def make(wanted):
        assert wanted in ahead
        makes(wanted)

    monkeypatch.setattr(graph_operator, "make_ahead", make_ahead)
    model, x = made(MODELS["llama"])
    results(torch.compile(model, backend=Rewritten()), model, x)
    monkeypatch.setattr(graph_operator, "make", make)
    torch.compiler.reset()
    backend = Rewritten()
    results(torch.compile(model, backend=backend), model, x)
    assert ahead[0].rows == 15 and ahead[1].rows == 15  # the same with slices would be of no use
    assert sum("normjit" in str(node.target) for each in backend.graphs for node in each.graph.nodes) > 1


def test_inputs_that_are_written():
    """A region reads an input before the graph writes to it."""
    def updating(m, x):
        y = m.layer_norm(x) + m.rms_norm(m.weight * x)
        m.history.mul_(0.5).add_(y.detach().mean((0, 1)))
        x.add_(y)
        return y * m.history

    model, x = made(updating)
    model.register_buffer("history", torch.ones(COLS, dtype=torch.float64))
    found = []
    for function in (model, torch.compile(model, backend=Rewritten(), fullgraph=True)):
        model.history.fill_(1)
        given = x.clone()
        with torch.no_grad():
            found.append((function(given), given, model.history.clone()))
    assert_near(found[1], found[0], 1e-12)
    assert any(each["taken"] for each in normjit.torch.graph_report())


def test_a_mistake_leaves_the_graph_to_inductor(monkeypatch):
    def grow(self, seed):
        raise KeyError("mistake")

    monkeypatch.setattr(Region, "grow", grow)
    model, x = made(MODELS["gated"])
    assert_near(results(torch.compile(model, backend=Rewritten()), model, x), results(model, model, x), 1e-12)
    assert {each["why"] for each in normjit.torch.graph_report()} == {"KeyError: 'mistake'"}


def test_a_mistake_amid_the_changes_takes_them_back(monkeypatch):
    """Inductor gets the graph as it was, with all metadata."""
    def sort(of):
        raise KeyError("mistake")

    monkeypatch.setattr(graph, "_sort", sort)
    model, x = made(MODELS["block"])
    with torch._inductor.config.patch(force_disable_caches=True):
        compiled = torch.compile(model, backend="normjit", options={"normjit.take": "all"})
        assert_near(results(compiled, model, x), results(model, model, x), 1e-12)
    report = normjit.torch.graph_report()
    assert report and not any(each["taken"] or each["calls"] for each in report)
    assert all(each["why"] == "KeyError elsewhere in the graph: 'mistake'" for each in report)


def test_factors_bounds_and_powers():
    """Arguments that change what an operator computes are not overlooked."""
    def function(m, x):
        h = torch.add(x, m.linear(x), alpha=-2.5).clamp(-1.25, 1.5)
        h = torch.sub(h, x.mean(-1, keepdim=True), alpha=3) + torch.add(x, 2, alpha=4).square().pow(-0.5)
        return m.layer_norm(torch.rsub(h, 1.5).clamp(max=2.0)) + x.var(-1, correction=3, keepdim=True)

    model, x = made(function)
    assert_near(results(torch.compile(model, backend=Rewritten()), model, x), results(model, model, x), 1e-12)
    assert any(each["taken"] for each in normjit.torch.graph_report())


def test_graphs_without_regions_and_types_without_kernels():
    def integers(m, x):
        return x.long().sum(-1, keepdim=True) + x.long().amax(-1, keepdim=True) * (x > 0) + m.weight.long()

    model, x = made(integers)
    assert torch.equal(torch.compile(model, backend=Rewritten())(x), model(x))
    assert normjit.torch.graph_report() == []


def test_uuids_tell_passes_apart():
    assert normjit.torch.GraphPass("all").uuid() != normjit.torch.GraphPass().uuid()
    assert normjit.torch.GraphPass().uuid() == normjit.torch.GraphPass().uuid()
    assert normjit.torch.GraphPass(after=normjit.torch.GraphPass("none")).uuid() != normjit.torch.GraphPass().uuid()
    with pytest.raises(normjit.InvalidArgument, match="allowed: faster, all, none"):
        normjit.torch.GraphPass("some")


def test_settings_of_inductor_that_allow_no_other_kernels():
    model, x = made(MODELS["gated"])
    with torch._inductor.config.patch(emulate_precision_casts=True):
        torch.compile(model, backend=Rewritten())(x)
    assert {each["why"] for each in normjit.torch.graph_report()} == \
        {"emulate_precision_casts is on, and formulas do not round between"}


def test_an_option_that_does_not_exist():
    model, x = made(MODELS["gated"])
    with pytest.raises(Exception, match="normjit.takes: there is no such option; normjit's is normjit.take"):
        torch.compile(model, backend="normjit", options={"normjit.takes": "all"})(x)


def test_torch_finds_the_backend_by_its_name():
    (entry,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="normjit")
    assert entry.load() is graph.backend
    assert "normjit" in torch.compiler.list_backends()


def test_the_operator_without_rows_and_with_rows_that_no_stride_describes():
    graph_operator.register()
    spec = "norm both(a0[M,N], a1[M]) -> o0[M,N], o1[N] { o0 = a0 * a1 - row_mean(a0); o1 = col_sum(a0) } " \
           "pass=forward cols=4 a0=f32 a1=f32 o0=f32 o1=f32 out=o0,o1"
    for x in (torch.randn(0, 4), torch.randn(0, 5, 4).transpose(0, 1), torch.randn(2, 4, 3).mT, torch.randn(5, 2, 4).transpose(0, 1)):
        scale = torch.randn(*x.shape[:-1], 1)
        o0, o1 = torch.ops.normjit.region(spec, "m0:f32 c0:f32", [x, scale])
        torch.testing.assert_close(o0, x * scale - x.mean(-1, keepdim=True))
        torch.testing.assert_close(o1, x.sum(list(range(x.dim() - 1))))
    torch.library.opcheck(torch.ops.normjit.region.default, (spec, "m0:f32 c0:f32", [torch.randn(3, 4), torch.randn(3, 1)]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
