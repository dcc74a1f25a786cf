# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""normjit.formula: outputs, derived gradients, and what may be missing, on NumPy's arrays."""
import copy
import pickle
import re
import threading

import normjit
import numpy
import pytest
from formula_cases import GATED, normal


def gated(x, z, gamma, eps):
    x, z, gamma = (numpy.asarray(each, numpy.float64) for each in (x, z, gamma))
    rstd = 1 / numpy.sqrt((x * x).mean(-1) + eps)
    return x * rstd[..., None] * gamma / (1 + numpy.exp(-z)), rstd


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16])
def test_forward_and_backward(dtype):
    x, z, dy = (normal(2, 5, 70, dtype=dtype) for _ in range(3))
    gamma, eps, tolerance = normal(70), 1e-3, {numpy.float32: 1e-5, numpy.float16: 1e-2}[dtype]
    norm = normjit.formula(GATED)
    assert (norm.name, norm.inputs, norm.outputs, norm.optional) == (
        "gated", ("x", "z", "gamma"), ("y", "rstd"), ("gamma", "rstd"))
    y, rstd = norm(x=x, z=z, gamma=gamma, eps=eps, outputs=("y", "rstd"))
    assert y.dtype == dtype and rstd.dtype == numpy.float32 and rstd.shape == (2, 5)
    wanted_y, wanted_rstd = gated(x, z, gamma, eps)
    numpy.testing.assert_allclose(y, wanted_y, rtol=tolerance, atol=tolerance)
    numpy.testing.assert_allclose(rstd, wanted_rstd, rtol=1e-5)
    for saved in ({}, {"rstd": rstd}):
        got = norm.backward(x=x, z=z, gamma=gamma, dy=dy, eps=eps, **saved)
        assert got._fields == ("dx", "dz", "dgamma") and got.dx.dtype == dtype and got.dgamma.dtype == numpy.float32
        for name, given in {"dx": x, "dz": z, "dgamma": gamma}.items():
            direction = normal(*given.shape).astype(numpy.float64)
            arguments = {"dx": x, "dz": z, "dgamma": gamma}

            def loss(step):
                moved = {**arguments, name: numpy.asarray(given, numpy.float64) + step * direction}
                return (gated(*moved.values(), eps)[0] * dy).sum()

            slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
            size = numpy.abs(numpy.asarray(getattr(got, name), numpy.float64) * direction).sum()
            assert abs((getattr(got, name) * direction).sum() - slope) <= tolerance * size


def test_what_is_missing_is_left_out():
    x, z = normal(4, 9), normal(4, 9)
    norm = normjit.formula(GATED)
    numpy.testing.assert_array_equal(norm(x=x, z=z).y, norm(x=x, z=z, gamma=numpy.ones(9, numpy.float32)).y)
    assert norm.backward(x=x, z=z, dy=x)._fields == ("dx", "dz")
    with pytest.raises(normjit.InvalidArgument, match="z: is missing; the formula needs it"):
        norm(x=x)


def test_norms_of_the_library():
    x = normal(3, 50)
    rows = numpy.asarray(x, numpy.float64)
    numpy.testing.assert_allclose(normjit.formula("l2norm")(x=x).y, rows / numpy.linalg.norm(rows, axis=-1)[:, None],
                                  rtol=1e-4)
    assert normjit.formula("gated_rmsnorm")(x=x, z=x).y.shape == x.shape


def test_softmax():
    x = normal(3, 4, 50)
    e = numpy.exp(x.astype(float) - x.max(-1, keepdims=True))
    numpy.testing.assert_allclose(normjit.formula("softmax")(x=x).y, e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_heads_share_the_angles_of_their_rotation():
    def rotated(x):
        q = x * gamma / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps)
        return q * cos + numpy.roll(q, 32, -1) * sin

    # Heads in a view of a packed tensor: tokens, then queries, keys and values, then heads.
    x, dy = (normal(10, 3, 6, 64)[:, 1].transpose(1, 0, 2) for _ in range(2))
    cos, sin, gamma, eps = normal(10, 64), normal(10, 64), normal(64), 1e-3
    norm, given = normjit.formula("qk_norm_rope"), {"x": x, "cos": cos, "sin": sin, "gamma": gamma, "eps": eps}
    wide, step = x.astype(float), 1e-5
    numpy.testing.assert_allclose(norm(**given).y, rotated(wide), rtol=1e-4, atol=1e-5)
    got = norm.backward(dy=dy, **given)
    assert got._fields == ("dx", "dgamma")
    change = normal(6, 10, 64).astype(float)
    slope = ((rotated(wide + step * change) - rotated(wide - step * change)) * dy).sum() / (2 * step)
    numpy.testing.assert_allclose((got.dx * change).sum(), slope, rtol=1e-4)
    with pytest.raises(normjit.InvalidArgument, match="outputs: dcos; allowed: dx, dgamma"):
        norm.backward(dy=dy, outputs=("dcos",), **given)
    with pytest.raises(normjit.InvalidArgument, match=r"cos: its shape is \(9, 64\); \[M,N\] beside x is \(10, 64\)"):
        norm(**{**given, "cos": cos[1:]})


def test_pairs_of_columns_are_rotated():
    x, dy, cos, sin, gamma = normal(6, 10, 64), normal(6, 10, 64), normal(10, 64), normal(10, 64), normal(64)
    pairs = lambda a: a.reshape(*a.shape[:-1], -1, 2)[..., ::-1].reshape(a.shape)  # noqa: E731
    rstd = 1 / numpy.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 1e-5)
    q = x * gamma * rstd
    norm, given = normjit.formula("qk_norm_rope_interleaved"), {"x": x, "cos": cos, "sin": sin, "gamma": gamma}
    numpy.testing.assert_allclose(norm(**given).y, q * cos + pairs(q) * sin, rtol=1e-4, atol=1e-5)
    dq = dy * cos + pairs(dy * sin)
    xhat = x * rstd
    got = norm.backward(dy=dy, **given)
    numpy.testing.assert_allclose(got.dgamma, (dq * xhat).sum((0, 1)), rtol=1e-4, atol=1e-4)
    dx = rstd * (dq * gamma - xhat * (dq * gamma * xhat).mean(-1, keepdims=True))
    numpy.testing.assert_allclose(got.dx, dx, rtol=1e-4, atol=1e-5)
    with pytest.raises(normjit.InvalidArgument, match=r"cols=9: neighbour\(\), the other element of a pair, needs an even"):
        normjit.formula("norm f(x[M,N]) -> y[M,N] { y = neighbour(x) * 2 }")(x=normal(4, 9))


def test_outputs_go_where_the_caller_says():
    x, z = normal(4, 9), normal(4, 9)
    y = numpy.empty_like(x)
    assert normjit.formula(GATED)(x=x, z=z, out={"y": y}).y is y
    with pytest.raises(normjit.InvalidArgument, match=r"y: its shape is \(4, 8\)"):
        normjit.formula(GATED)(x=x, z=z, out={"y": numpy.empty((4, 8), numpy.float32)})


@pytest.mark.parametrize("axes", ["M,N", "S,M,N"])
def test_gradients_are_accumulated(axes):
    of_columns = axes.replace("M,", "")
    norm = normjit.formula(f"norm f(x[{axes}], g[{of_columns}], b[{of_columns}]) -> y[{axes}] {{ y = tanh(x) * g + b }}")
    x, dy = normal(2, 5, 9), normal(2, 5, 9)
    if axes == "M,N":
        x, dy = x.reshape(10, 9), dy.reshape(10, 9)
    shape = (*x.shape[:-2], 9)
    held = {"dg": normal(*shape), "db": normal(*shape)}
    out = {name: array.copy() for name, array in held.items()}
    got = norm.backward(x=x, g=normal(*shape), b=normal(*shape), dy=dy, out=out, accumulate="dg")
    assert got.dg is out["dg"]
    numpy.testing.assert_allclose(got.dg, held["dg"] + (dy * numpy.tanh(x)).sum(-2), rtol=1e-5, atol=1e-5)
    numpy.testing.assert_allclose(got.db, dy.sum(-2), rtol=1e-5, atol=1e-5)
    with pytest.raises(normjit.InvalidArgument, match="accumulate: 'dx'; allowed: dg, db"):
        norm.backward(x=x, g=normal(*shape), b=normal(*shape), dy=dy, out=out, accumulate="dx")


def test_matrices_of_8_bits():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, gamma = normal(37, 200), normal(200)
    exact = x / numpy.sqrt(numpy.square(x).mean(-1, keepdims=True, dtype=numpy.float64) + 1e-6) * gamma
    norm, wide = normjit.formula("rmsnorm_e4m3"), numpy.empty(x.shape, numpy.float32)
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        y = numpy.empty(x.shape, dtype)
        made = norm(x=x, gamma=gamma, eps=1e-6, out={"y": y})
        norm(x=x, gamma=gamma, eps=1e-6, out={"y": wide})
        assert (y.view(numpy.uint8) == wide.astype(dtype).view(numpy.uint8)).all()
        spacing = 2.0 ** -(3 if dtype is ml_dtypes.float8_e4m3fn else 2)
        assert (numpy.abs(y.astype(numpy.float32) * made.scale[:, None] - exact) <= spacing * numpy.abs(exact) + made.scale[:, None] * 2.0 ** -9).all()
        read = normjit.formula("l2norm")(x=y, eps=1e-6).y
        assert read.dtype == numpy.float32
        numpy.testing.assert_array_equal(read, normjit.formula("l2norm")(x=y.astype(numpy.float32), eps=1e-6).y)
    with pytest.raises(normjit.InvalidArgument, match="^x: its type is float8_e5m2; allowed: f32, bf16, f16, f64$"):
        normjit.layer_norm_backward(y, y)
    with pytest.raises(normjit.InvalidArgument, match="gamma=e4m3: 8-bit types are for matrices"):
        norm(x=x, gamma=gamma.astype(ml_dtypes.float8_e4m3fn))


def test_matrices_of_int8():
    x, gamma = normal(37, 200), normal(200)
    y = numpy.empty(x.shape, numpy.int8)
    made = normjit.formula("rmsnorm_i8")(x=x, gamma=gamma, eps=1e-6, out={"y": y})
    exact = x / numpy.sqrt(numpy.square(x).mean(-1, keepdims=True, dtype=numpy.float64) + 1e-6) * gamma
    numpy.testing.assert_allclose(made.scale, numpy.abs(exact).max(-1) / 127, rtol=1e-5)
    wanted = exact / made.scale[:, None]
    assert (numpy.abs(y - wanted) <= 0.5 + 1e-3).all() and (numpy.abs(y).max(-1) == 127).all()
    read = normjit.formula("norm back(x[M,N], scale[M]) -> y[M,N] { y = x * scale }")(x=y, scale=made.scale).y
    assert read.dtype == numpy.float32
    numpy.testing.assert_array_equal(read, y.astype(numpy.float32) * made.scale[:, None])
    far = numpy.array([[1000, -1000, numpy.inf, -numpy.inf, numpy.nan, 0.5, 1.5, -0.5, 126.5, 127.4]], numpy.float32)
    stored = numpy.empty(far.shape, numpy.int8)
    normjit.formula("norm copy(x[M,N]) -> y[M,N] { y = x * 1 }")(x=far, out={"y": stored})
    assert stored.tolist() == [[127, -128, 127, -128, 0, 0, 2, 0, 126, 127]]


@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8), (0, 0, 8)])
def test_no_slices_or_no_rows(shape):
    norm = normjit.formula("norm f(x[S,M,N], g[S,N], w[N]) -> y[S,M,N] { y = x * rsqrt(row_mean(x * x) + eps) * g * w }")
    x, g, w = numpy.zeros(shape, numpy.float32), numpy.ones((shape[0], 8), numpy.float32), numpy.ones(8, numpy.float32)
    assert norm(x=x, g=g, w=w).y.shape == shape
    made = norm.backward(x=x, g=g, w=w, dy=x)
    assert made.dx.shape == shape and made.dg.shape == g.shape and not made.dg.any() and not made.dw.any()


def test_outputs_for_groups_of_columns():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, gamma, norm = normal(3, 5, 512), normal(512), normjit.formula("rmsnorm_blocks")
    y, scale = norm(x=x, gamma=gamma)
    assert scale.shape == (3, 5, 4) and scale.dtype == numpy.float32
    exact = x / numpy.sqrt(numpy.square(x).mean(-1, keepdims=True, dtype=numpy.float64) + 1e-5) * gamma
    numpy.testing.assert_allclose(scale, numpy.abs(exact).reshape(3, 5, 4, 128).max(-1) / 448, rtol=1e-5)
    numpy.testing.assert_allclose(y * numpy.repeat(scale, 128, -1), exact, rtol=1e-5, atol=1e-6)
    places = numpy.zeros((15, 7), numpy.float32)
    narrow = norm(x=x.reshape(15, 512), gamma=gamma,
                  out={"y": numpy.empty((15, 512), ml_dtypes.float8_e4m3fn), "scale": places[:, 1:5]})
    numpy.testing.assert_array_equal(narrow.y, numpy.clip(y, -448, 448).astype(ml_dtypes.float8_e4m3fn).reshape(15, 512))
    numpy.testing.assert_array_equal(places[:, 1:5], scale.reshape(15, 4))
    assert not places[:, [0, 5, 6]].any()
    mx = {"y": numpy.empty(x.shape, ml_dtypes.float8_e4m3fn), "scale": numpy.empty((3, 5, 16), ml_dtypes.float8_e8m0fnu)}
    normjit.formula("rmsnorm_mx")(x=x, gamma=gamma, out=mx)
    power = numpy.exp2(numpy.ceil(numpy.log2(numpy.abs(exact).reshape(3, 5, 16, 32).max(-1) / 448)))
    numpy.testing.assert_array_equal(mx["scale"].astype(numpy.float32), power)
    off = mx["y"].astype(numpy.float32) * numpy.repeat(power, 32, -1) - exact
    assert (numpy.abs(off) <= numpy.abs(exact) / 16 + numpy.repeat(power, 32, -1) * 2.0 ** -10 + 1e-6).all()
    named = normjit.formula("norm f(x[M,N]) -> y[M,N], g[M,N/G] { g = group_max(x, G); y = x - g }")
    assert named.numbers == ("G",) and named.run("g") == "G"
    numpy.testing.assert_array_equal(named(x=x, G=32).g, x.reshape(3, 5, 16, 32).max(-1))
    for call, message in (
        (lambda: norm.backward(x=x, dy=x), "scale: an output .M,N/128. has no gradient"),
        (lambda: norm(x=x, out={"scale": numpy.empty((3, 5, 3), "f4")}), "scale: its shape is .3, 5, 3.; .M,N/128. beside x is .3, 5, 4."),
        (lambda: norm(x=normal(3, 200)), "a run of 128 columns: must be a whole number that divides cols=200"),
        (lambda: named(x=x, G=8), "the columns of a group are 8; must be a power of two"),
    ):
        with pytest.raises(normjit.InvalidArgument, match=message):
            call()


def test_whole_numbers():
    norm = normjit.formula("""norm int8(x[M,N]) -> y[M,N], scale[M]
        scale = max(row_max(abs(x)) / 127, 1e-12)
        y     = (x / scale + 12582912 - 12582912) * scale""")
    x = normal(5, 1001)
    y, scale = norm(x=x)
    numpy.testing.assert_array_equal(y, numpy.rint(x / scale[:, None]) * scale[:, None])
    plain = normjit.formula("norm f(x[M,N]) -> y[M,N] { y = x + 12582912 - 12582912 }")
    numpy.testing.assert_array_equal(plain.backward(x=x, dy=x).dx, x)


def test_from_many_threads():
    norm, x = normjit.formula(GATED), normal(64, 33)
    right = norm(x=x, z=x).y
    wrong = []

    def call():
        for _ in range(50):
            if not (norm(x=x, z=x).y == right).all():
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_compiles_ahead_of_time():
    """The library keeps a pointer to the text, which must outlive the call that made it."""
    text = "norm ahead(x[M,N]) -> y[M,N] { y = x * rsqrt(row_mean(x * x) + eps) } pass=forward cols=64 x=f32"
    assert normjit.compile(" ".join(text.split())) == normjit.compile(text)
    assert len(normjit.compile(text)) > 100


SCALED = """norm scaled(x[M,N], gamma[N], scale[]) -> y[M,N], amax?[]
    v    = x * rsqrt(row_mean(x * x) + eps) * gamma
    amax = max_abs(v)
    y    = v / scale
"""


def test_a_scale_from_memory():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, gamma, norm = normal(5, 70), normal(70), normjit.formula(SCALED)
    for scale in (1.0, 3e-3, 1e-8):
        given = dict(x=x, gamma=gamma, scale=numpy.array(scale, "f4"))
        wide = norm(**given, outputs=("y", "amax"))
        got = norm(**given, out={"y": numpy.empty(x.shape, ml_dtypes.float8_e4m3fn)}).y
        numpy.testing.assert_array_equal(got, numpy.clip(wide.y, -448, 448).astype(ml_dtypes.float8_e4m3fn))
        numpy.testing.assert_allclose(wide.y * numpy.float32(scale), norm(x=x, gamma=gamma, scale=numpy.ones((), "f4")).y,
                                      rtol=1e-6)
        assert wide.amax.shape == ()
    dx, dgamma = norm.backward(**given, dy=normal(5, 70))
    assert dx.shape == x.shape and dgamma.shape == (70,)
    dy = normal(5, 70)
    dscale = norm.backward(**{**given, "scale": numpy.array(2, "f4")}, dy=dy, outputs=("dscale", "dx")).dscale
    wide = x.astype("f8")
    exact = -(dy * (wide / numpy.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * gamma) / 4).sum()
    assert dscale.shape == () and abs(dscale - exact) < 1e-4
    with pytest.raises(normjit.InvalidArgument, match="scale: its shape is"):
        norm(x=x, gamma=gamma, scale=numpy.ones(2, "f4"))


def test_groupnorm():
    batch, channels, pixels, groups = 3, 12, 35, 4
    images, above = normal(batch, channels, pixels), normal(batch, channels, pixels)
    gamma, beta = normal(channels), normal(channels)

    def in_slices(image):
        return image.reshape(batch, groups, -1).transpose(1, 0, 2)

    norm = normjit.formula("groupnorm")
    given = dict(x=in_slices(images), gamma=gamma.reshape(groups, -1), beta=beta.reshape(groups, -1), eps=1e-5)
    y, mean, rstd = norm(**given, outputs=("y", "mean", "rstd"))
    wide = images.astype(numpy.float64).reshape(batch, groups, -1)
    centred = wide - wide.mean(-1, keepdims=True)
    exact_rstd = 1 / numpy.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    xhat = (centred * exact_rstd).reshape(images.shape)
    exact = xhat * gamma[:, None] + beta[:, None]
    numpy.testing.assert_allclose(y.transpose(1, 0, 2).reshape(images.shape), exact, rtol=1e-5, atol=1e-5)
    dx, dgamma, dbeta = norm.backward(**given, dy=in_slices(above), mean=mean, rstd=rstd)
    assert dx.shape == (groups, batch, channels // groups * pixels) and dgamma.shape == dbeta.shape == (groups, channels // groups)
    numpy.testing.assert_allclose(dgamma.reshape(-1), (above * xhat).sum((0, 2)), rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(dbeta.reshape(-1), above.sum((0, 2), dtype=numpy.float64), rtol=1e-4, atol=1e-4)
    plain, = norm(x=in_slices(images))
    numpy.testing.assert_allclose(plain.transpose(1, 0, 2).reshape(images.shape), xhat, rtol=1e-5, atol=1e-5)
    with pytest.raises(normjit.InvalidArgument, match=r"gamma: its shape is .* of \[S,N/R\] must divide 105"):
        norm(x=in_slices(images), gamma=normal(groups, 11))
    for run in (25, 0, -35, 2.5):
        with pytest.raises(normjit.InvalidArgument, match="R: .* must be a whole number that divides 105"):
            norm(**given, R=run)
    with pytest.raises(normjit.InvalidArgument, match=r"beta: its shape is .* \[S,N/R\] beside x is \(4, 3\)"):
        norm(**{**given, "beta": normal(groups, 5)})


@pytest.mark.parametrize("first", ["gamma?[N]", "a?[M,N]"])
def test_the_first_input_may_be_missing(first):
    norm, x, name = normjit.formula(f"norm f({first}, x[M,N]) -> y[M,N] {{ y = x * 2 * {first.partition('?')[0]} }}"), normal(4, 9), first[0]
    numpy.testing.assert_array_equal(norm(x=x).y, x * 2)
    numpy.testing.assert_array_equal(norm.backward(x=x, dy=x).dx, x * 2)
    with pytest.raises(normjit.InvalidArgument, match="stream: x is on the CPU"):
        norm(x=x, stream=1)
    with pytest.raises(normjit.InvalidArgument, match="f: no input is a matrix"):
        normjit.formula("norm f(a?[M,N], b?[M,N]) -> y[M,N] { y = a * b * 2 }")()


ZERO = {"y = x * detach(gamma)": "dx", "y = x * gamma / gamma * c": "dx dc", "y = x * 2 * compare(gamma, 0)": "dx",
        "y = x * 2 - c + c + gamma": "dx dgamma", "y = x * 3": "dx", "r = row_mean(x); y = x + gamma * k * r": "dx",
        "v = gamma * 2; y = x * detach(v) * c": "dx dc"}


@pytest.mark.parametrize("body", ZERO)
def test_gradients_that_are_0_are_left_out(body):
    norm = normjit.formula(f"norm f(x[M,N], gamma[N], c[]) -> y[M,N], r?[M] {{ r = row_mean(x); {body.replace('r = row_mean(x); ', '')} }}")
    assert norm.numbers == (("k",) if "k" in body else ())
    given = dict(x=normal(4, 9), gamma=normal(9), c=numpy.ones((), "f4"), dy=normal(4, 9), **{name: 0.0 for name in norm.numbers})
    usual = [name for name in ZERO[body].split() if name != "dc"]
    assert list(norm.backward(**given)._fields) == usual
    assert norm.without_gradient([name for name in given if name != "k"], {name: 0.0 for name in norm.numbers}) == {
        name: bool(re.search(rf"\b{name}\b", body)) for name in norm.inputs if f"d{name}" not in ZERO[body].split()}
    for name in ("dgamma", "dc"):
        if name not in ZERO[body].split():
            with pytest.raises(normjit.InvalidArgument, match=f"the gradient of {name[1:]} is 0|'{name}' is not one of"):
                norm.backward(**given, outputs=name)


def test_names_of_python():
    x = normal(4, 9)
    made = normjit.formula("norm class(x[M,N], ef[M,N]) -> class[M,N], _y[M,N] { class = x * 2; _y = x * ef }")(x=x, ef=x)
    assert made._fields == ("_0", "_1") and type(made).__name__ == "class_"
    numpy.testing.assert_array_equal(made[1], x * x)
    for same in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert type(same) is type(made) and all(map(numpy.array_equal, same, made))
    norm = normjit.formula("norm f(x[M,N], ef[M,N]) -> y[M,N] { y = x * ef }")
    assert norm.backward(x=x, ef=x, dy=x)._fields == ("dx", "_1")
    for name in ("self", "outputs", "stream"):
        for text in (f"norm f(x[M,N], {name}[N]) -> y[M,N] {{ y = x * {name} }}", f"norm f(x[M,N]) -> y[M,N] {{ y = x * {name} }}"):
            with pytest.raises(normjit.InvalidArgument, match=f"formula: '{name}' is an argument of each call"):
                normjit.formula(text)


@pytest.mark.parametrize("name", ["f32", "i8"])
def test_names_of_types(name):
    x = normal(4, 9)
    norm = normjit.formula(f"norm f(x[M,N]) -> {name}[M,N] {{ {name} = x * 2 }}")
    numpy.testing.assert_array_equal(norm(x=x)[0], 2 * x)
    numpy.testing.assert_array_equal(norm.backward(**{"x": x, f"d{name}": x}).dx, 2 * x)


def test_names_of_numbers():
    norm = normjit.formula("norm f(x[M,N], g?[N/R], h?[N/128]) -> y[M,N]\n  v = max(k, x) * 1e-5 # e f\n  y = (v * g + .5e3 * z2) * h / N\n")
    assert norm.numbers == ("R", "k", "z2")
