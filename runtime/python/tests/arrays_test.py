# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""normjit.layer_norm, rms_norm and their gradients on NumPy and DLPack."""
import sys
import threading
import types

import normjit
import numpy as np
import pytest
import reference

BACKWARD = {"layernorm": normjit.layer_norm_backward, "rmsnorm": normjit.rms_norm_backward}


def random(seed, *shape, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(norm, x, dy, gamma, got, dtype="float32", **options):
    wanted = reference.gradients(norm, x, dy, gamma, **options)
    for name, array, right in zip(normjit.Gradients._fields, got, wanted):
        if array is not None:
            reference.assert_close(array, right, dtype, name)


@pytest.mark.parametrize("norm", BACKWARD)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("shape", [(16,), (3, 1), (5, 33), (2, 3, 4, 65), (0, 8), (300, 1000)])
def test_gradients(norm, dtype, shape):
    x, dy, gamma = random(1, *shape, dtype=dtype), random(2, *shape, dtype=dtype), random(3, shape[-1], dtype=dtype)
    got = BACKWARD[norm](x, dy, gamma)
    assert got.dx.dtype == got.dgamma.dtype == np.dtype(dtype)
    assert (got.dbeta is None) == (norm == "rmsnorm")
    check(norm, x, dy, gamma, got, dtype)


@pytest.mark.parametrize("norm", BACKWARD)
def test_no_gamma(norm):
    x, dy = random(1, 7, 40), random(2, 7, 40)
    got = BACKWARD[norm](x, dy)
    assert got.dgamma is None and got.dbeta is None
    check(norm, x, dy, None, got)


@pytest.mark.parametrize("norm", BACKWARD)
def test_options(norm):
    x, dy, gamma, dresidual = random(1, 9, 50), random(2, 9, 50), random(3, 50), random(4, 9, 50)
    options = {"eps": 0.3, "gamma_offset": 1.0, "dresidual": dresidual}
    check(norm, x, dy, gamma, BACKWARD[norm](x, dy, gamma, **options), **options)


@pytest.mark.parametrize("norm", BACKWARD)
@pytest.mark.parametrize("rows", [0, 1, 300])
def test_gradients_are_accumulated(norm, rows):
    x, dy, gamma = random(1, rows, 50), random(2, rows, 50), random(3, 50)
    names = ("dgamma",) if norm == "rmsnorm" else ("dgamma", "dbeta")
    held = {name: random(4, 50) for name in names}
    out = {name: array.copy() for name, array in held.items()}
    got = BACKWARD[norm](x, dy, gamma, out=out, accumulate=names)
    BACKWARD[norm](x, dy, gamma, out={"dgamma": out["dgamma"]}, accumulate="dgamma")
    times = {"dgamma": 2, "dbeta": 1}
    wanted = dict(zip(normjit.Gradients._fields, reference.gradients(norm, x, dy, gamma)))
    for name in names:
        reference.assert_close(getattr(got, name), held[name] + times[name] * wanted[name], "float32", name)


@pytest.mark.parametrize("accumulate, message", [
    ("dx", "accumulate: 'dx'; allowed: dgamma, dbeta"), (("dgamma", "dbeta"), "accumulate: dbeta: has no array in out"),
    (3, "accumulate: 3; allowed"), ("gamma", "accumulate: 'gamma'; allowed")])
def test_what_cannot_be_accumulated_is_named(accumulate, message):
    x, gamma = random(1, 4, 50), random(3, 50)
    with pytest.raises(normjit.InvalidArgument, match=message):
        normjit.layer_norm_backward(x, x, gamma, out={"dgamma": gamma.copy()}, accumulate=accumulate)


@pytest.mark.parametrize("norm", BACKWARD)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("shape", [(16,), (3, 1), (2, 3, 4, 65), (0, 8), (300, 1000)])
def test_layer(norm, dtype, shape):
    x, residual, gamma = random(1, *shape, dtype=dtype), random(2, *shape, dtype=dtype), random(3, shape[-1], dtype=dtype)
    options = {"residual": residual, "rowscale": random(4, *shape[:-1], dtype=dtype), "eps": 0.1, "gamma_offset": 1.0}
    if norm == "layernorm":
        got = normjit.layer_norm(x, gamma, gamma, outputs=("y", "h", "mean", "rstd"), **options)
        wanted = reference.layer(norm, x, gamma, gamma, **options)
    else:
        got = normjit.rms_norm(x, gamma, outputs=("y", "h", "rstd"), **options)
        wanted = reference.layer(norm, x, gamma, **options)
        assert got.mean is None
    statistics = "float64" if dtype == "float64" else "float32"
    for name, array, right in zip(got._fields, got, wanted):
        if array is not None:
            is_rows = name in ("mean", "rstd")
            assert array.dtype == np.dtype(statistics if is_rows else dtype)
            reference.assert_close(array, right[..., 0] if is_rows else right, array.dtype.name, name)


def test_layer_outputs():
    x, residual = random(1, 6, 40), random(2, 6, 40)
    assert [array is None for array in normjit.layer_norm(x)] == [False, True, True, True]
    got = normjit.rms_norm(x, residual=residual, out={"h": residual})
    assert got.h is residual and got.y.shape == x.shape
    saved = normjit.layer_norm(x, outputs=("mean", "rstd"))
    check("layernorm", x, x, None, normjit.layer_norm_backward(x, x, mean=saved.mean, rstd=saved.rstd))


@pytest.mark.parametrize("call, message", [
    (lambda x: normjit.layer_norm(x, x), "gamma: its shape is (6, 40); must be (40,)"),
    (lambda x: normjit.rms_norm(x, residual=x[0]), "residual: its shape is (40,); must be that of x, (6, 40)"),
    (lambda x: normjit.rms_norm(x, rowscale=x), "rowscale: its shape is (6, 40); must be (6,) or (6, 1)"),
    (lambda x: normjit.rms_norm(x, outputs="mean"), "outputs: mean; allowed: y, h, rstd"),
    (lambda x: normjit.layer_norm(x, outputs=("y", "h")), "spec: out=y,h: h is x without a residual or rowscale"),
    (lambda x: normjit.rms_norm(x, rounding="gemma"), "rounding: 'gemma'; allowed: none, llama"),
])
def test_layer_refusals(call, message):
    with pytest.raises(normjit.InvalidArgument) as raised:
        call(random(1, 6, 40))
    assert str(raised.value) == message


def test_saved_statistics():
    x, dy, gamma = random(1, 4, 6, 50), random(2, 4, 6, 50), random(3, 50)
    mean, rstd = (s.astype("float32") for s in reference.statistics("layernorm", x))
    for shape in ((4, 6), (4, 6, 1)):
        got = normjit.layer_norm_backward(x, dy, gamma, mean=mean.reshape(shape), rstd=rstd.reshape(shape))
        check("layernorm", x, dy, gamma, got)
    wrong = normjit.layer_norm_backward(x, dy, gamma, mean=mean, rstd=2 * rstd)
    assert np.abs(wrong.dgamma - 2 * got.dgamma).max() < 1e-4  # statistics that are given are used


def test_outputs():
    x, dy, gamma = random(1, 9, 50), random(2, 9, 50), random(3, 50)
    every = normjit.layer_norm_backward(x, dy, gamma)
    for names in (["dx"], ["dgamma"], ["dbeta"], ["dgamma", "dbeta"]):
        some = normjit.layer_norm_backward(x, dy, gamma, outputs=names)
        for name, one, other in zip(every._fields, some, every):
            assert (one is not None) == (name in names)
            assert one is None or np.allclose(one, other, rtol=1e-5, atol=1e-5)


def test_strides():
    """Rows with gaps, in a view of more dimensions, repeated rows, and dx in place of dy are all read and written in
    place, without copies."""
    wide, dy = random(1, 4, 6, 80), random(2, 4, 6, 50)
    x, gamma = wide[..., 10:60], random(3, 50)
    out = np.full((4, 6, 90), 7.0, "float32")
    got = normjit.layer_norm_backward(x, dy, gamma, out={"dx": out[..., 20:70]})
    assert got.dx.base is out and (out[..., :20] == 7).all() and (out[..., 70:] == 7).all()
    check("layernorm", x, dy, gamma, got)
    repeated = np.broadcast_to(dy[0, 0], (4, 6, 50))
    check("layernorm", x, repeated, gamma, normjit.layer_norm_backward(x, repeated, gamma))
    in_place = dy.copy()
    got = normjit.layer_norm_backward(x, in_place, gamma, out={"dx": in_place})
    assert got.dx is in_place
    check("layernorm", x, dy, gamma, got)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_invariance(norm):
    backward = getattr(normjit, f"{norm}_norm_backward")
    x, dy, gamma = random(1, 40, 9000), random(2, 40, 9000), random(3, 9000)
    whole = backward(x, dy, gamma, invariant=True).dx
    for rows in (slice(0, 1), slice(7, 9), slice(20, 40)):
        assert (backward(x[rows], dy[rows], gamma, invariant=True).dx == whole[rows]).all()


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_the_message_about_types_names_those_of_norms(dtype):
    x = random(1, 4, 8)
    other = x.astype(dtype)
    allowed = f"its type is {dtype}; allowed: f32, bf16, f16, f64$"
    for name, call in (("x", lambda: normjit.layer_norm(other)), ("gamma", lambda: normjit.rms_norm(x, other[0])),
                       ("dy", lambda: normjit.layer_norm_backward(x, other)),
                       ("y", lambda: normjit.rms_norm(x, out={"y": other}))):
        with pytest.raises(normjit.InvalidArgument, match=f"^{name}: {allowed}"):
            call()


BAD = {
    "dy: its shape is (3, 8); must be that of x, (4, 8)": lambda x, g: (x, x[:3], g, {}),
    "gamma: its shape is (7,); must be (8,)": lambda x, g: (x, x, g[:7], {}),
    "x: its type is int64; allowed: f32, bf16, f16, f64": lambda x, g: (x.astype("int64"), x, g, {}),
    "x: its type is >f4; allowed": lambda x, g: (x.astype(">f4"), x, g, {}),
    "f64 needs x=f64": lambda x, g: (x, x.astype("float64"), g, {}),
    "the stride of its last dimension is 2; must be 1": lambda x, g: (np.repeat(x, 2, 1)[:, ::2], x, g, {}),
    "no single row stride describes its dimensions": lambda x, g: (
        x.reshape(2, 2, 8).swapaxes(0, 1),
        x.reshape(2, 2, 8),
        g,
        {},
    ),
    "x: has no dimensions": lambda x, g: (np.array(1.0, "float32"), np.array(1.0, "float32"), g, {}),
    "cols=0: must be at least 1": lambda x, g: (x[:, :0], x[:, :0], g[:0], {}),
    "mean and rstd come together": lambda x, g: (x, x, g, {"mean": x[:, 0]}),
    "mean: its shape is (8,); must be (4,) or (4, 1)": lambda x, g: (x, x, g, {"rstd": g, "mean": g}),
    "outputs: dgamma: there is no gamma": lambda x, g: (x, x, None, {"outputs": ["dgamma"]}),
    "outputs: dy; allowed: dx, dgamma, dbeta": lambda x, g: (x, x, g, {"outputs": ["dy"]}),
    "outputs: none": lambda x, g: (x, x, g, {"outputs": []}),
    "out: dbeta: not among the outputs": lambda x, g: (x, x, g, {"outputs": "dx", "out": {"dbeta": g}}),
    "out: dx: cannot be written to": lambda x, g: (x, x, g, {"out": {"dx": np.broadcast_to(g, x.shape)}}),
    "out: dgamma: its shape is (7,); must be (8,)": lambda x, g: (x, x, g, {"out": {"dgamma": g[:7]}}),
    "x: is None; must be an array": lambda x, g: (None, x, g, {}),
    "dy: is None; must be an array": lambda x, g: (x, None, g, {}),
    "x: is a masked array": lambda x, g: (np.ma.masked_array(x, x > 0), x, g, {}),
    "out: is ndarray; must be a mapping": lambda x, g: (x, x, g, {"out": np.empty_like(x)}),
    "out: is tuple; must be a mapping": lambda x, g: (x, x, g, {"out": (np.empty_like(x),)}),
    "outputs: 3; must be names of dx, dgamma, dbeta": lambda x, g: (x, x, g, {"outputs": 3}),
    "outputs: ['dx', 3]; must be names of": lambda x, g: (x, x, g, {"outputs": ["dx", 3]}),
    "eps: None; must be a finite number and at least 0": lambda x, g: (x, x, g, {"eps": None}),
    "eps: 'small'; must be a finite number and at least 0": lambda x, g: (x, x, g, {"eps": "small"}),
    "eps: array([1., 1.]); must be a finite number": lambda x, g: (x, x, g, {"eps": np.ones(2)}),
    "eps: inf; must be a finite number and at least 0": lambda x, g: (x, x, g, {"eps": 10**5000}),
    "eps: nan; must be a finite number and at least 0": lambda x, g: (x, x, g, {"eps": float("nan")}),
    "eps: -1; must be a finite number and at least 0": lambda x, g: (x, x, g, {"eps": -1}),
    "gamma_offset: None; must be a finite number": lambda x, g: (x, x, g, {"gamma_offset": None}),
    "gamma_offset: -inf; must be a finite number": lambda x, g: (x, x, g, {"gamma_offset": -(10**400)}),
    "stream: x is on the CPU": lambda x, g: (x, x, g, {"stream": 1}),
    "dx: row_stride is 1; the rows of an output must be at least cols=8 apart": lambda x, g: (
        x,
        x,
        g,
        {"out": {"dx": np.lib.stride_tricks.as_strided(x, (4, 8), (4, 4))}},
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    x, dy, gamma, options = BAD[message](random(1, 4, 8), random(2, 8))
    with pytest.raises(normjit.InvalidArgument) as error:
        normjit.layer_norm_backward(x, dy, gamma, **options)
    assert message in str(error.value)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("module", ["numpy", "numpy.ma"])
def test_another_thread_imports(module, monkeypatch):
    """A module is known before it has its content."""
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    y = np.zeros((4, 8), "float32")
    normjit.layer_norm(random(1, 4, 8), out={"y": y})
    assert y.all()


class Broken:
    """Has DLPack's methods, but passes nothing."""

    def __init__(self, device, capsule):
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self):
        return self.device()

    def __dlpack__(self, **_):
        return self.capsule()


def refused():
    raise BufferError("not now")


@pytest.mark.parametrize("array, message", [
    ([1.0, 2.0], "list is no array: it has no __dlpack__"),
    ("text", "str is no array: it has no __dlpack__"),
    (1.0, "float is no array: it has no __dlpack__"),
    ({}, "dict is no array: it has no __dlpack__"),
    (np.float32(1), "float32 is no array: it has no __dlpack__"),
    (np.ndarray, "type is no array|its library does not hand its data over"),
    (np.array([object()]), "its type is object; allowed: f32"),
    (np.array(["text"]), "its type is <U4; allowed: f32"),
    (np.zeros(2, [("a", "f4")]), "its type is .*; allowed: f32"),
    (np.zeros(2, ">f4"), "its type is >f4; allowed: f32"),
    (Broken(refused, refused), "its library does not hand its data over: BufferError: not now"),
    (Broken(lambda: (1, 0), refused), "its library does not hand its data over: BufferError: not now"),
    (Broken(lambda: (1, 0), lambda: None), "its __dlpack__.. returns no tensor but NoneType"),
    (Broken(lambda: 1, refused), "its library does not hand its data over: TypeError"),
    (types.SimpleNamespace(__dlpack__=refused), "its library does not hand its data over: AttributeError"),
])
def test_what_is_no_array(array, message):
    x = random(1, 2, 3)
    for name, call in {"x": lambda: normjit.layer_norm(array), "dy": lambda: normjit.rms_norm_backward(x, array),
                       "gamma": lambda: normjit.rms_norm(x, array), "y": lambda: normjit.rms_norm(x, out={"y": array}),
                       "residual": lambda: normjit.layer_norm(x, residual=array)}.items():
        with pytest.raises(normjit.InvalidArgument, match=f"^{name}: ({message})"):
            call()


@pytest.mark.parametrize("options, message", [
    ({"out": {1: None}}, r"out: \[1\]; must be names of y, h, rstd"),
    ({"rounding": np.zeros(2)}, "rounding: array"),
    ({"invariant": np.zeros(2)}, "invariant: is ndarray; must be True or False"),
    ({"invariant": "no"}, "invariant: is str; must be True or False"), ({"invariant": None}, "invariant: is NoneType"),
    ({"invariant": 1}, "invariant: is int"),
    ({"stream": "mine"}, "stream: "),
])
def test_options_that_are_none(options, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        normjit.rms_norm(random(1, 2, 3), **options)


def test_what_torch_does_not_hand_over():
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 3)
    for array, message in ((x.to("meta"), "x: its library"), (x.to_sparse(), "x: "), (x.int(), "x: its type is torch.int32"),
                           (torch.nested.nested_tensor([x], layout=torch.jagged), "x: "), (x.to(torch.complex64), "x: its type")):
        with pytest.raises(normjit.InvalidArgument, match=message):
            normjit.layer_norm(array)
    message = "its library does not hand its data over"
    with pytest.raises(normjit.InvalidArgument, match=message):
        torch.func.vmap(lambda t: normjit.layer_norm(t).y)(x)


def test_gradients_do_not_end_unseen():
    torch = pytest.importorskip("torch")
    x, weight = torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.ones(3))
    plain = x.detach()
    message = "requires a gradient, which would end here; call normjit.torch.layer_norm, rms_norm or formula, or give detach"
    for name, call in {"x": lambda: normjit.layer_norm(x), "gamma": lambda: normjit.rms_norm(plain, weight),
                       "residual": lambda: normjit.layer_norm(plain, residual=x), "y": lambda: normjit.rms_norm(plain, out={"y": x}),
                       "dy": lambda: normjit.layer_norm_backward(plain, x)}.items():
        with pytest.raises(normjit.InvalidArgument, match=f"^{name}: {message}"):
            call()
        with torch.no_grad():
            call()


class OldProducer:
    """Behaves like arrays before DLPack 1, which accept no keyword except stream."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    x, dy, gamma = random(1, 9, 50), random(2, 9, 50), random(3, 50)
    out = {"dx": np.empty_like(x), "dgamma": np.empty_like(gamma), "dbeta": np.empty_like(gamma)}
    got = normjit.layer_norm_backward(OldProducer(x), OldProducer(dy), OldProducer(gamma), out=out)
    assert got.dx is out["dx"]
    check("layernorm", x, dy, gamma, got)
    with pytest.raises(normjit.InvalidArgument, match="does not say how such arrays are made"):
        normjit.layer_norm_backward(OldProducer(x), OldProducer(dy))


def test_autograd_sees_what_is_written():
    torch = pytest.importorskip("torch")
    x, y, unwritten = torch.rand(9, 50, requires_grad=True), torch.ones(9, 50), torch.ones(9, 50)
    first, second = (x * y[:]).sum(), (x * unwritten).sum()
    normjit.layer_norm(x.detach(), out={"y": y, "mean": None}, outputs=("y", "mean"))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.backward()
    second.backward()
    with torch.inference_mode():
        normjit.rms_norm(x, out={"y": torch.empty(9, 50)})  # torch does not count its versions


def test_subclasses():
    """For an array of a subclass, outputs are made by the library of the base class."""
    x = np.random.default_rng(1).standard_normal((9, 50)).astype("float32")

    class Mine(np.ndarray):
        __array_namespace__ = None  # as of NumPy 1

    assert isinstance(normjit.rms_norm(x.view(Mine)).y, np.ndarray)


def test_threads():
    """Simultaneous launches from several threads have separate workspaces."""
    problems = [(random(i, 40, 100 + i), random(99 + i, 40, 100 + i), random(i, 100 + i)) for i in range(6)]
    failures = []

    def work(problem):
        try:
            for _ in range(30):
                check("layernorm", *problem, normjit.layer_norm_backward(*problem))
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(problem,)) for problem in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_negative_views_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 3)
    turned = torch._neg_view(torch.ones(2, 3))
    for name, call in {"x": lambda: normjit.rms_norm(turned), "y": lambda: normjit.rms_norm(x, out={"y": turned}),
                       "dy": lambda: normjit.layer_norm_backward(x, turned)}.items():
        with pytest.raises(normjit.InvalidArgument, match=f"^{name}: is a view that negates what it reads"):
            call()
    assert (normjit.rms_norm(turned.resolve_neg()).y < 0).all()
