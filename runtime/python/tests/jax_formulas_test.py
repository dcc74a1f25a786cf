# SPDX-License-Identifier: Apache-2.0
# needs: numpy jax
"""normjit.jax.formula: outputs and gradients against the same mathematics in JAX, in double precision."""
import functools
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # for shard_map

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import normjit  # noqa: E402
from normjit.jax import formula  # noqa: E402
import numpy as np  # noqa: E402
import processes  # noqa: E402
import pytest  # noqa: E402
import reference  # noqa: E402

jax.config.update("jax_enable_x64", True)

GATED = ("norm gated(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M] "
         "{ rstd = rsqrt(row_mean(x * x) + eps); y = x * rstd * gamma * silu(z) }")
SCALED = "norm scaled(x[M,N], r[M], alpha[]) -> y[M,N], s[M] { s = row_sum(x * r); y = tanh(alpha * x) * r }"
HEADS = ("norm heads(x[S,M,N], gamma[S,N], cosine[M,N]) -> y[S,M,N] "
         "{ y = x * rsqrt(row_mean(x * x) + eps) * gamma * cosine }")


def random(seed, *shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def gated_of(x, z, gamma):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gamma * jax.nn.silu(z)


def check(function, exact, dy, **given):
    """Compares outputs and gradients with those of `exact` in double precision."""
    wide = {name: array.astype("float64") for name, array in given.items()}
    y, pull = jax.vjp(lambda given: function(**given), given)
    right, pull_wide = jax.vjp(lambda given: exact(**given), wide)
    reference.assert_close(y, right, y.dtype.name, "y")
    for name, got in pull(dy)[0].items():
        assert got.dtype == given[name].dtype and got.shape == given[name].shape
        reference.assert_close(got, pull_wide(dy.astype("float64"))[0][name], got.dtype.name, "d" + name)


@pytest.mark.parametrize("dtype, of_gamma", [("float32", "float32"), ("bfloat16", "float32"), ("float16", "float16"),
                                             ("float64", "float64")])
@pytest.mark.parametrize("shape", [(16,), (3, 1), (2, 3, 4, 65), (300, 1000)])
def test_gradients(dtype, of_gamma, shape):
    x, z, dy = (random(i, *shape, dtype=dtype) for i in range(3))
    check(formula(GATED), gated_of, dy, x=x, z=z, gamma=random(3, shape[-1], dtype=of_gamma))


def test_rows_and_numbers():
    x, r, dy = random(1, 5, 7, 33), random(2, 5, 7, 1), random(3, 5, 7, 33)
    norm = formula(SCALED)
    check(lambda **given: norm(**given, outputs=["y"]), lambda x, r, alpha: jnp.tanh(alpha * x) * r, dy, x=x, r=r,
          alpha=jnp.float32(0.7))
    both = norm(x=x, r=r, alpha=jnp.float32(0.7))
    assert both._fields == ("y", "s") and both.s.shape == (5, 7)
    reference.assert_close(both.s, (np.float64(x) * np.float64(r)).sum(-1), "float32")
    ds = random(4, 5, 7)
    dx = jax.vjp(lambda x: norm(x=x, r=r, alpha=jnp.float32(0.7)).s, x)[1](ds)[0]  # y's gradient is 0
    reference.assert_close(dx, np.broadcast_to(np.float64(ds)[..., None] * np.float64(r), x.shape), "float32")


def test_slices():
    x, gamma, cosine, dy = random(1, 4, 6, 32), random(2, 4, 32), random(3, 6, 32), random(4, 4, 6, 32)

    def exact(x, gamma):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gamma[:, None] * cosine
    check(lambda x, gamma: formula(HEADS)(x=x, gamma=gamma, cosine=cosine), exact, dy, x=x, gamma=gamma)
    with pytest.raises(normjit.InvalidArgument, match="cosine: all slices share it"):
        jax.grad(lambda cosine: formula(HEADS)(x=x, gamma=gamma, cosine=cosine).sum())(cosine)


@pytest.mark.parametrize("check_axes", [True, False])
def test_transformations(check_axes):
    x, z, gamma, dy = random(1, 6, 8, 40), random(2, 6, 8, 40), random(3, 40), random(4, 6, 8, 40)
    norm = formula(GATED)

    def loss(x, z, gamma):
        return (norm(x=x, z=z, gamma=gamma) * dy).sum()
    right = jax.grad(loss, (0, 1, 2))(x, z, gamma)
    for got in (jax.jit(jax.grad(loss, (0, 1, 2)))(x, z, gamma), jax.grad(jax.checkpoint(loss), (0, 1, 2))(x, z, gamma)):
        for a, b in zip(got, right):
            np.testing.assert_array_equal(a, b)
    each = jax.vmap(jax.grad(lambda x, z, gamma, dy: (norm(x=x, z=z, gamma=gamma) * dy).sum(), (0, 1, 2)), (0, 0, None, 0))
    dx, dz, dgamma = each(x, z, gamma, dy)
    np.testing.assert_array_equal(dx, right[0])
    np.testing.assert_allclose(dgamma.sum(0), right[2], rtol=1e-5, atol=1e-5)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rows",))
    rows, whole = jax.sharding.PartitionSpec("rows"), jax.sharding.PartitionSpec()
    split = jax.shard_map(lambda x, z, gamma: norm(x=x, z=z, gamma=gamma), mesh=mesh, in_specs=(rows, rows, whole), out_specs=rows,
                          check_vma=check_axes)
    got = jax.grad(lambda x, z, gamma: (split(x, z, gamma) * dy).sum(), (0, 1, 2))(x, z, gamma)
    for a, b in zip(got, right):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_vmap_of_what_elements_do_not_share():
    x, r, alpha = random(1, 3, 5, 33), random(2, 5, 1), random(3, 3)
    norm = formula(SCALED)
    got = jax.vmap(lambda x, alpha: norm(x=x, r=r, alpha=alpha, outputs=["y"]))(x, alpha)
    reference.assert_close(got, np.tanh(np.float64(alpha)[:, None, None] * np.float64(x)) * np.float64(r), "float32")
    ones, many = random(4, 6, 40), random(5, 3, 40)
    calls = str(jax.make_jaxpr(jax.vmap(lambda x: formula(GATED)(x=x, z=x)))(random(6, 3, 6, 40)))
    assert calls.count("ffi_call") and "scan" not in calls  # further rows of one call
    got = jax.vmap(lambda gamma: formula(GATED)(x=ones, z=ones, gamma=gamma))(many)
    np.testing.assert_array_equal(got[1], formula(GATED)(x=ones, z=ones, gamma=many[1]))


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="JAX without meshes of explicit axes")
def test_meshes():
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    x, dy, gamma = random(1, 4, 6, 48), random(2, 4, 6, 48), random(3, 48)
    norm = formula(GATED)
    right = jax.grad(lambda x, gamma: (norm(x=x, z=x, gamma=gamma) * dy).sum(), (0, 1))(x, gamma)
    devices = jax.devices()[:2]
    mesh = jax.make_mesh((len(devices),), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,), devices=devices)
    with jax.set_mesh(mesh):
        place = NamedSharding(mesh, P("rows", None, None))
        given, shared = jax.device_put(x, place), jax.device_put(dy, place)
        got = jax.jit(jax.grad(lambda x, gamma: (norm(x=x, z=x, gamma=gamma) * shared).sum(), (0, 1)))(given, gamma)
        assert got[0].sharding.spec == place.spec
    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))
    by_rows = jax.device_put(x, NamedSharding(mesh, P("rows")))
    for found in (got, jax.jit(jax.grad(lambda x, gamma: (norm(x=x, z=x, gamma=gamma) * dy).sum(), (0, 1)))(by_rows, gamma)):
        for a, b in zip(found, right):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_an_output_without_use_takes_no_part_in_gradients():
    two = formula("norm two(x[M,N], w[N]) -> y[M,N], z[M,N] { y = x * 2; z = log(x) * w }")
    x, w = jnp.array([[0.0, 1.0]]), jnp.ones(2)
    for of_y in (lambda x, w: two(x=x, w=w).y.sum(), lambda x, w: two(x=x, w=w, outputs=["y"]).sum()):
        dx, dw = jax.jit(jax.grad(of_y, (0, 1)))(x, w)
        assert dx.tolist() == [[2, 2]] and dw.tolist() == [0, 0]
    of_columns = formula("norm f(x[M,N], m[M]) -> y[M,N], s[M] { y = x * m; s = exp(m) }")
    dx, dm = jax.grad(lambda x, m: of_columns(x=x, m=m).s.sum(), (0, 1))(x, jnp.zeros(1))
    assert dx.tolist() == [[0, 0]] and dm.tolist() == [1]
    of_neither = jax.grad(lambda x: sum(map(jax.lax.stop_gradient, two(x=x, w=w))).sum())
    assert of_neither(x).tolist() == [[0, 0]]


def test_gradients_of_other_inputs_in_between():
    norm = formula("norm squared(x[M,N], r[M,N]) -> y[M,N], h?[M,N] { h = x + r; y = h * h }")
    x, r = random(0, 3, 8), random(1, 3, 8)

    def gradient(output, of):
        return jax.grad(lambda *given: norm(x=given[0], r=given[1], outputs=("y", "h"))[output].sum(), of)(x, r)

    gradient(0, 0)
    gradient(0, 1)
    for of in (0, 1):
        np.testing.assert_array_equal(gradient(1, of), np.ones((3, 8)))


@pytest.mark.parametrize("text", ["norm of_rows(x[M,N], r[M]) -> s[M] { s = row_mean(x) + r * r }",
                                  "norm of_rows(x[M,N], r[M]) -> y[M,N], s[M] { y = x * row_mean(x); s = r * r }"])
def test_gradients_of_row_values_alone(text):
    """No matrix is read for the gradient of r."""
    x, r = random(1, 3, 8), random(2, 3)
    norm = formula(text)
    np.testing.assert_allclose(jax.grad(lambda r: sum(each.sum() for each in jax.tree.leaves(norm(x=x, r=r))))(r), 2 * r, rtol=1e-6)


def test_of_the_library_and_8_bits():
    x, gamma = random(1, 9, 256), random(2, 256)
    y, scale = formula("rmsnorm_e4m3")(x=x, gamma=gamma, dtypes={"y": jnp.float8_e4m3fn})
    assert y.dtype == jnp.float8_e4m3fn and scale.shape == (9,)
    wanted = np.float64(x) / np.sqrt((np.float64(x) ** 2).mean(-1, keepdims=True) + 1e-5) * np.float64(gamma)
    got = np.float64(y) * np.float64(scale)[:, None]
    assert np.abs(got - wanted).max() <= np.abs(wanted).max() / 15


def test_int8():
    x, gamma = random(1, 9, 256), random(2, 256)
    y, scale = jax.jit(lambda x: formula("rmsnorm_i8")(x=x, gamma=gamma, dtypes={"y": jnp.int8}))(x)
    assert y.dtype == jnp.int8 and np.abs(np.int32(y)).max() == 127
    wanted = np.float64(x) / np.sqrt((np.float64(x) ** 2).mean(-1, keepdims=True) + 1e-5) * np.float64(gamma)
    assert np.abs(np.float64(y) * np.float64(scale)[:, None] - wanted).max() <= 0.51 * np.float64(scale).max()
    back = formula("norm back(x[M,N], scale[M]) -> y[M,N] { y = x * scale }")(x=y, scale=scale, dtypes={"y": jnp.float32})
    np.testing.assert_array_equal(back, np.float32(y) * np.asarray(scale)[:, None])


@pytest.mark.parametrize("transform", [lambda pull: pull, jax.jit])
def test_whole_numbers_have_no_gradient(transform):
    """A gradient for an int8 output has JAX's type float0 if the caller of a vjp gives it."""
    x, gamma = random(1, 3, 16), random(2, 16)
    norm = formula("norm f(x[M,N], gamma[N]) -> y[M,N], h[M,N] { h = x * gamma; y = h }")
    y, pull = jax.vjp(lambda x: norm(x=x, gamma=gamma, dtypes={"y": jnp.int8}), x)
    (dx,) = transform(pull)(type(y)(np.zeros(x.shape, jax.dtypes.float0), jnp.ones_like(x)))
    np.testing.assert_array_equal(dx, np.broadcast_to(gamma, x.shape))


def test_no_elements():
    x, gamma = jnp.zeros((0, 40)), random(1, 40)
    norm = formula(GATED)
    assert norm(x=x, z=x, gamma=gamma).shape == (0, 40)
    assert not jax.grad(lambda gamma: norm(x=x, z=x, gamma=gamma).sum())(gamma).any()


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="JAX without jax.shard_map")
@pytest.mark.parametrize("rows", [0, 6])
def test_shard_map_outside_jit(rows):
    from jax.sharding import Mesh, PartitionSpec as P

    norm, x, gamma = formula(GATED), random(1, rows, 40), random(2, 40)

    def both(x, gamma):
        dx, dgamma = jax.grad(lambda x, gamma: norm(x=x, z=x, gamma=gamma).sum(), (0, 1))(x, gamma)
        return norm(x=x, z=x, gamma=gamma), dx, dgamma

    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))
    got = jax.shard_map(both, mesh=mesh, in_specs=(P("rows"), P()), out_specs=(P("rows"), P("rows"), P()))(x, gamma)
    for array, right in zip(got, both(x, gamma)):
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-5)


def test_formulas_of_one_text_are_equal():
    traced = []

    @functools.partial(jax.jit, static_argnums=0)
    def compute(norm, x):
        traced.append(norm)
        return norm(x=x)

    for text in ("softmax", "softmax", "l2norm"):
        compute(formula(text), jnp.ones((3, 4)))
    assert len(traced) == 2 and traced[0] != traced[1] and traced[0] != "softmax"


@pytest.mark.parametrize("given, message", [
    ({"x": 1}, "z: is missing"), ({"x": 1, "z": 1, "w": 1}, "w: the formula has nothing of this name"),
    ({"x": 1, "z": np.zeros((3, 5))}, r"z: its shape is \(3, 5\)"), ({"x": 1, "z": 1, "gamma": np.zeros(3)}, "gamma: its shape"),
    ({"x": np.zeros((3, 4), int), "z": 1}, "x: its type is int"), ({"x": 1, "z": 1, "eps": np.zeros(3)}, "eps"),
    ({"x": 1, "z": 1, "outputs": ["h"]}, "outputs: 'h'; allowed: y, rstd"), ({"x": 1, "z": 1, "outputs": []}, "outputs: none"),
    ({"x": 1, "z": 1, "outputs": "rst"}, "outputs: 'rst'; allowed: y, rstd"), ({"x": 1, "z": 1, "outputs": 1.0}, "outputs: 1.0; allowed"),
    ({"x": 1, "z": 1, "dtypes": {"y": "int16"}}, "dtypes: y: int16"), ({"x": 1, "z": 1, "dtypes": {"y": "fast"}}, "dtypes: y: 'fast'"),
    ({"x": 1, "z": 1, "dtypes": {"y": None}}, "dtypes: y: None; allowed"),
    ({"x": 1, "z": 1, "dtypes": "float16"}, "dtypes: is str; must be a mapping"), ({"x": np.zeros(()), "z": 1}, "x: its shape is")])
def test_refused(given, message):
    given = {name: np.zeros((3, 4)) if isinstance(value, int) else value for name, value in given.items()}
    with pytest.raises(normjit.InvalidArgument, match=message):
        formula(GATED)(**given)
    with pytest.raises(normjit.InvalidArgument, match="formula: is int"):
        formula(3)
    with pytest.raises(normjit.InvalidArgument, match="formula: 'dtypes' is an argument of each call"):
        formula("norm f(x[M,N], dtypes[N]) -> y[M,N] { y = x * dtypes }")


def test_one_output_by_its_name():
    assert formula("l2norm")(x=jnp.ones((3, 4)), outputs="rstd").shape == (3,)


def test_with_the_coming_custom_vjp():
    """JAX has another implementation of custom_vjp behind an option that is read when a function is made."""
    done = processes.run_program(
        "import jax, jax.numpy as jnp, normjit.jax; norm = normjit.jax.formula('softmax'); x = jnp.arange(6.0).reshape(2, 3)\n"
        "print(jnp.abs(jax.grad(lambda x: norm(x=x)[0, 0])(x) - jax.grad(lambda x: jax.nn.softmax(x)[0, 0])(x)).max() < 1e-6)",
        JAX_CUSTOM_VJP3="1")
    assert done.stdout.strip() == "True", done.stderr
