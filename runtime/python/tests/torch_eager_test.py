# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""normjit.torch.enable(): gradients, and everything above the operators that must keep working."""
import threading

import normjit.torch
import pytest
import torch
from torch.nn import functional
from torch_cases import DEVICES, Served, assert_close, case, check, layer_norm, leaf, reference


@pytest.fixture(autouse=True)
def override():
    with normjit.torch.enabled():
        yield


TYPES = [(torch.float32, None), (torch.bfloat16, None), (torch.bfloat16, torch.float32), (torch.float16, None),
         (torch.float64, None)]
SHAPES = {
    (16,): 1,
    (5, 1): 1,
    (4, 7, 96): 1,
    (3, 4, 5, 6): 2,
    (0, 8): 1,
    (600, 257): 1,
    (2, 3, 1, 40): 2,
    (64, 4096): 1,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, weight_dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(device, dtype, weight_dtype, shape):
    if device == "cuda" and weight_dtype is not None:
        pytest.skip("torch refuses these types on a GPU")
    x, w, b, dy = case(*shape, dtype=dtype, weight_dtype=weight_dtype, normalized=SHAPES[shape], device=device)
    with Served(1):
        layer_norm(x, w, b, SHAPES[shape]).backward(dy)
    # On a CPU torch keeps the statistics in x's type if the weight has that type as well.
    check(x, w, b, dy, SHAPES[shape], stored=dtype if device == "cpu" and weight_dtype is None else None)


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 1, 0)])
def test_masks(wanted):
    x, w, b, dy = case(6, 40)
    for tensor, wants in zip((x, w, b), wanted):
        tensor.requires_grad_(bool(wants))
    with Served(1):
        layer_norm(x, w, b).backward(dy)
    check(x, w, b, dy)


def test_operator_itself():
    """Calls that request no outputs, and calls whose optional arguments are None, work."""
    x, w, b, dy = (t.detach() for t in case(6, 40))
    _, mean, rstd = torch.native_layer_norm(x, (40,), w, b, 1e-5)
    operator = torch.ops.aten.native_layer_norm_backward
    with Served(2):
        assert operator(dy, x, [40], mean, rstd, w, b, [False, False, False]) == (None, None, None)
        dx, dgamma, dbeta = operator(dy, x, [40], mean, rstd, None, None, [True, True, True])
    assert dgamma is None and dbeta is None
    assert_close(dx, reference(x, None, None, dy)[0])


@pytest.mark.parametrize("weights", ["none", "no bias"])
def test_without_weights(weights):
    x, w, _, dy = case(6, 40)
    w = None if weights == "none" else w
    with Served(1):
        layer_norm(x, w, None).backward(dy)
    check(x, w, None, dy)


LAYOUTS = {
    "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "rows apart": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "columns apart": lambda t: torch.stack([t, t], -1)[..., 0],
    "offset": lambda t: torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x, w, b, dy = case(4, 7, 33)
    with Served(1):
        layer_norm(LAYOUTS[layout](x), w, b).backward(LAYOUTS[layout](dy))
    check(x, w, b, dy)


def test_expanded_gradient():
    """The gradient of sum() is one element, repeated by strides of 0."""
    x, w, b, dy = case(4, 7, 33)
    with Served(1):
        layer_norm(x, w, b).sum().backward()
    check(x, w, b, torch.ones_like(dy))


def test_gradcheck():
    x, w, b, _ = case(3, 7, dtype=torch.float64)
    assert torch.autograd.gradcheck(layer_norm, (x, w, b))
    assert torch.autograd.gradgradcheck(layer_norm, (x, w, b))


def test_functorch():
    x, w, b, dy = (t.detach() for t in case(5, 3, 24))
    loss = lambda *inputs: (layer_norm(*inputs[:3]) * inputs[3]).sum()  # noqa: E731
    wanted = reference(x, w, b, dy)
    for got, right in zip(torch.func.grad(loss, (0, 1, 2))(x, w, b, dy), wanted):
        assert_close(got, right)
    each = torch.func.vmap(torch.func.grad(loss, (0, 1, 2)), in_dims=(0, None, None, 0))(x, w, b, dy)
    for i in range(5):
        for got, right in zip(each, reference(x[i], w, b, dy[i])):
            assert_close(got[i], right)
    _, tangent = torch.func.jvp(lambda t: layer_norm(t, w, b), (x,), (dy,))
    step = 1e-6
    numeric = (
        layer_norm(x.double() + step * dy, w.double(), b.double()) - layer_norm(x.double(), w.double(), b.double())
    ) / step
    assert float((tangent - numeric).abs().max()) < 1e-3


def test_autocast():
    x, w, b, dy = case(8, 64)
    with torch.autocast("cpu", torch.bfloat16), Served(1):
        layer_norm(x, w, b).backward(dy)
    check(x, w, b, dy)


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint

    x, w, b, dy = case(8, 64)
    with Served(1):
        checkpoint(layer_norm, x, w, b, use_reentrant=False).backward(dy)
    check(x, w, b, dy)


def test_fake_and_meta_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    for mode, device in ((FakeTensorMode(), "cpu"), (torch.no_grad(), "meta")):
        with mode, Served(0):
            x, w = torch.empty(4, 8, device=device), torch.empty(8, device=device)
            stat = torch.empty(4, 1, device=device)
            got = torch.ops.aten.native_layer_norm_backward(x, x, [8], stat, stat, w, w, [True, True, True])
            assert [tuple(t.shape) for t in got] == [(4, 8), (8,), (8,)]


def test_threads():
    """Simultaneous backward passes, each on its own thread."""
    cases = [case(50, 64 + i) for i in range(4)]

    def work(x, w, b, dy):
        for _ in range(20):
            x.grad = w.grad = b.grad = None
            layer_norm(x, w, b).backward(dy)

    threads = [threading.Thread(target=work, args=each) for each in cases]
    with Served(80):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for each in cases:
        check(*each)


def test_dtensor(tmp_path):
    import torch.distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        x, w, b, dy = case(8, 64)
        shard = lambda t, how: distribute_tensor(t.detach(), mesh, [how]).requires_grad_()  # noqa: E731
        dx, dw, db = shard(x, Shard(0)), shard(w, Replicate()), shard(b, Replicate())
        with Served(1):
            layer_norm(dx, dw, db).backward(distribute_tensor(dy, mesh, [Shard(0)]))
        for got, right in zip((dx, dw, db), reference(x, w, b, dy)):
            assert_close(got.grad.full_tensor(), right)
        # In our own operators, weights with a row for each sample are sharded like the samples.
        x, w, b, dy = (t.detach() for t in case(4, 5, 16))
        w = torch.stack([w, -w, 2 * w, w])
        dx, dw, db = shard(x, Shard(0)), shard(w, Shard(0)), shard(b, Replicate())
        with Served(2):
            y = normjit.torch.layer_norm(dx, dw, db)
            y.backward(distribute_tensor(dy, mesh, [Shard(0)]))
        assert [t.placements for t in (y, dx.grad, dw.grad)] == [(Shard(0),)] * 3 and db.grad.placements[0].is_partial()
        for i in range(4):
            wanted = reference(x[i], w[i], b, dy[i])
            assert_close(dx.grad.full_tensor()[i], wanted[0])
            assert_close(dw.grad.full_tensor()[i], wanted[1])
        assert_close(db.grad.full_tensor(), dy.double().sum((0, 1)))
    finally:
        torch.distributed.destroy_process_group()


def test_module_and_optimizer():
    """The losses of a training loop follow those in double precision."""
    def losses(dtype):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 1)).to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.randn(64, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
        for _ in range(10):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(data), data.sum(1, keepdim=True))
            loss.backward()
            optimizer.step()
            yield float(loss.detach())

    assert list(losses(torch.float32)) == pytest.approx(list(losses(torch.float64)), rel=1e-4)


def test_bf16_weight_gradients():
    """Torch sums weights' gradients in bf16, with errors of several percent; normjit sums in f32 and rounds once."""
    x, w, b, dy = case(4096, 64, dtype=torch.bfloat16)
    _, right, _ = reference(x, w, b, dy)
    layer_norm(x, w, b).backward(dy)
    assert float((w.grad.double() - right).norm() / right.norm()) < 0.005


def test_compile_is_left_alone():
    """Inductor decomposes the operator, so ours is not called."""
    x, w, b, dy = case(8, 64)
    compiled = torch.compile(layer_norm, backend="aot_eager_decomp_partition")
    with Served(0):
        compiled(x, w, b).backward(dy)
    check(x, w, b, dy)


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_cuda_streams_and_graphs():
    x, w, b, dy = case(64, 512, device="cuda")
    layer_norm(x, w, b).backward(dy)
    eager = [t.grad.clone() for t in (x, w, b)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), Served(3):
        for _ in range(3):
            x.grad = w.grad = b.grad = None
            layer_norm(x, w, b).backward(dy)
    torch.cuda.synchronize()
    assert all(torch.equal(t.grad, e) for t, e in zip((x, w, b), eager))
    graph = torch.cuda.CUDAGraph()
    for t in (x, w, b):
        t.grad = None
    with torch.cuda.graph(graph):
        layer_norm(x, w, b).backward(dy)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(t.grad, e) for t, e in zip((x, w, b), eager))


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_new_kernel_in_a_capture_is_torchs():
    x, w, b, dy = case(64, 1234, device="cuda")
    before = normjit.torch.report()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer_norm(x, w, b).backward(dy)
    graph.replay()
    torch.cuda.synchronize()
    check(x, w, b, dy)
    assert normjit.torch.report()["left_to_torch"] == before["left_to_torch"] + 1


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_rms_norm(dtype):
    x, w, _, dy = case(64, 512, dtype=dtype, device="cuda")
    with Served(1):
        functional.rms_norm(x, (512,), w, 1e-5).backward(dy)
    for got, right in zip((x.grad, w.grad), reference(x, w, None, dy, norm="rmsnorm")):
        assert_close(got, right)
