# SPDX-License-Identifier: Apache-2.0
# needs: numpy jax
"""normjit.jax: gradients against double precision, and JAX's transformations."""
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # for shard_map

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import normjit  # noqa: E402
from normjit.jax import layer_norm, rms_norm  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import reference  # noqa: E402

jax.config.update("jax_enable_x64", True)

EPS = 1e-5


def random(seed, *shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def norm_of(name, **options):
    if name == "layernorm":
        return lambda x, scale, bias: layer_norm(x, scale, bias, EPS)
    return lambda x, scale, _: rms_norm(x, scale, EPS, **options)


def gradients(function, dy, *inputs):
    """Returns the gradients of all existing inputs, from the function's backward pass."""
    there = [i for i, t in enumerate(inputs) if t is not None]

    def of(*given):
        full = list(inputs)
        for i, t in zip(there, given):
            full[i] = t
        return function(*full)

    y, pull = jax.vjp(of, *(inputs[i] for i in there))
    assert y.dtype == dy.dtype and y.shape == dy.shape
    got = dict(zip(there, pull(dy)))
    return [got.get(i) for i in range(len(inputs))]


def check(norm, got, x, dy, scale, bias, offset=0.0):
    right = reference.gradients(norm, x, dy, scale, eps=EPS, gamma_offset=offset)
    for what, array, like, wanted in zip(("dx", "dscale", "dbias"), got, (x, scale, bias), right):
        if like is None or (what == "dbias" and norm == "rmsnorm"):
            continue
        assert array.dtype == like.dtype
        of_f32 = like.dtype == jnp.float64 and x.dtype != jnp.float64  # the arithmetic is of x's type
        reference.assert_close(array, wanted, "float32" if of_f32 else like.dtype.name, what)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize(
    "dtype, scale_dtype",
    [("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float32"), ("bfloat16", "float32"),
     ("float64", "float64"), ("float64", "float32"), ("float32", "float64"), ("bfloat16", "float64")],
)
@pytest.mark.parametrize("shape", [(16,), (3, 1), (2, 3, 4, 65), (300, 1000)])
def test_gradients(norm, dtype, scale_dtype, shape):
    x, dy = random(1, *shape, dtype=dtype), random(2, *shape, dtype=dtype)
    scale, bias = random(3, shape[-1], dtype=scale_dtype), random(4, shape[-1], dtype=scale_dtype)
    got = gradients(norm_of(norm), dy, x, scale, bias if norm == "layernorm" else None)
    check(norm, got, x, dy, scale, bias)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_forward(norm):
    x, scale, bias = random(1, 40, 33), random(2, 33), random(3, 33)
    mean, rstd = reference.statistics(norm, x, EPS)
    wanted = (np.float64(x) - mean) * rstd * np.float64(scale) + (np.float64(bias) if norm == "layernorm" else 0)
    reference.assert_close(norm_of(norm)(x, scale, bias), wanted, "float32")


def test_without_weights():
    x, dy, scale, bias = random(1, 9, 20), random(2, 9, 20), random(3, 20), random(4, 20)
    for weights in ((None, None), (scale, None), (None, bias)):
        check("layernorm", gradients(norm_of("layernorm"), dy, x, *weights), x, dy, *weights)
    check("rmsnorm", gradients(norm_of("rmsnorm"), dy, x, None, None), x, dy, None, None)


def test_zero_centred():
    x, dy, scale = random(1, 9, 20), random(2, 9, 20), random(3, 20)
    got = gradients(norm_of("rmsnorm", scale_offset=1.0), dy, x, scale, None)
    check("rmsnorm", got, x, dy, scale, None, offset=1.0)


@pytest.mark.parametrize("norm", [lambda x, gamma: rms_norm(x, gamma, EPS),
                                  lambda x, gamma: normjit.jax.formula("rmsnorm")(x=x, gamma=gamma, eps=EPS)])
def test_double_precision_where_it_is_off(norm):
    """As in JAX, the result is f32, and the gradients have the type of their inputs."""
    x, gamma, dy = (random(i, *shape, dtype="float64") for i, shape in enumerate([(9, 20), (20,), (9, 20)]))
    enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable_x64(False):
        y, pull = jax.vjp(norm, x, gamma)
        dx, dgamma = pull(dy.astype(y.dtype))
    assert y.dtype == jnp.float32 and dx.dtype == dgamma.dtype == jnp.float64
    for got, wanted in zip((dx, dgamma), reference.gradients("rmsnorm", x, dy, gamma, eps=EPS)):
        reference.assert_close(got, wanted, "float32")


def test_no_rows():
    got = gradients(norm_of("layernorm"), jnp.zeros((0, 8)), jnp.zeros((0, 8)), random(3, 8), random(4, 8))
    assert got[0].shape == (0, 8) and not got[1].any() and not got[2].any()


def test_jit_and_remat():
    x, dy, scale, bias = random(1, 64, 96), random(2, 64, 96), random(3, 96), random(4, 96)
    loss = lambda x, scale, bias: (layer_norm(x, scale, bias, EPS) * dy).sum()  # noqa: E731
    for function in (loss, jax.checkpoint(loss)):
        check("layernorm", jax.jit(jax.grad(function, (0, 1, 2)))(x, scale, bias), x, dy, scale, bias)


def test_is_in_the_program():
    """The backward pass is one of our calls, not XLA's own operators."""
    text = jax.jit(jax.grad(lambda x: layer_norm(x).sum())).lower(random(1, 4, 8)).as_text()
    assert "normjit_backward" in text


def test_vmap():
    x, dy, scale, bias = random(1, 5, 7, 24), random(2, 5, 7, 24), random(3, 24), random(4, 24)
    each = jax.vmap(lambda x, dy: gradients(norm_of("layernorm"), dy, x, scale, bias))(x, dy)
    for i in range(5):
        check("layernorm", [t[i] for t in each], x[i], dy[i], scale, bias)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("weights", ["of all", "of each", "none"])
def test_vmap_is_one_call(norm, weights):
    """A batch becomes slices. So do nested batches, and batches with a weight for each element, which has its own
    gradient."""
    x, dy = random(1, 2, 3, 7, 24), random(2, 2, 3, 7, 24)
    shape = (2, 3, 24) if weights == "of each" else (24,)
    scale, bias = (None, None) if weights == "none" else (random(3, *shape), random(4, *shape))
    if norm == "rmsnorm":
        bias = None
    axes = (0, 0, *(0 if t is not None and t.ndim > 1 else None for t in (scale, bias)))
    pull = lambda x, dy, scale, bias: [  # noqa: E731
        t for t in gradients(norm_of(norm), dy, x, scale, bias) if t is not None]
    function = jax.jit(jax.vmap(jax.vmap(pull, axes), axes))
    text = function.lower(x, dy, scale, bias).as_text()
    assert text.count("@normjit_backward") == 1 and "while" not in text
    found = function(x, dy, scale, bias)
    for i, j in np.ndindex(2, 3):
        own = [None if t is None else t[i, j] if t.ndim > 1 else t for t in (scale, bias)]
        check(norm, [t[i, j] for t in found], x[i, j], dy[i, j], *own)


@pytest.mark.parametrize("weights", ["of all", "of each", "none"])
@pytest.mark.parametrize("sizes", [(0, 3), (2, 0), (0, 0)])
def test_vmap_over_nothing(weights, sizes):
    x = random(1, *sizes, 7, 24)
    shape = (*sizes, 24) if weights == "of each" else (24,)
    scale = None if weights == "none" else random(2, *shape)
    axes = (0, 0 if weights == "of each" else None)
    pull = lambda x, scale: [t for t in gradients(layer_norm, x, x, scale) if t is not None]  # noqa: E731
    found = jax.vmap(jax.vmap(pull, axes), axes)(x, scale)
    assert [t.shape for t in found] == [x.shape] + ([(*sizes, 24)] if scale is not None else [])


def test_vmap_within_shard_map():
    from jax.sharding import Mesh, PartitionSpec as P

    x, dy, scale, bias = random(1, 4, 5, 48), random(2, 4, 5, 48), random(3, 48), random(4, 48)
    mesh = Mesh(np.array(jax.devices()[:2]), ("samples",))
    forward = jax.shard_map(jax.vmap(lambda x, scale, bias: layer_norm(x, scale, bias, EPS), (0, None, None)), mesh=mesh,
                            in_specs=(P("samples"), P(), P()), out_specs=P("samples"))
    got = jax.jit(jax.grad(lambda *inputs: (forward(*inputs) * dy).sum(), (0, 1, 2)))(x, scale, bias)
    check("layernorm", got, x, dy, scale, bias)


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="JAX without meshes of explicit axes")
@pytest.mark.parametrize("spec", [("rows", None, None), (None, "rows", None)])
def test_explicit_mesh(spec):
    """Gradients have the sharding that is in their input's type."""
    from jax.sharding import NamedSharding, PartitionSpec as P

    x, dy, scale, bias = random(1, 4, 6, 48), random(2, 4, 6, 48), random(3, 48), random(4, 48)
    devices = jax.devices()[:2]
    mesh = jax.make_mesh((len(devices),), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,), devices=devices)
    with jax.set_mesh(mesh):
        inputs = jax.device_put(x, NamedSharding(mesh, P(*spec))), scale, bias
        shared = jax.device_put(dy, NamedSharding(mesh, P(*spec)))
        got = jax.jit(jax.grad(lambda *inputs: (layer_norm(*inputs, EPS) * shared).sum(), (0, 1, 2)))(*inputs)
        assert got[0].sharding.spec == P(*spec)
    check("layernorm", [np.asarray(t) for t in got], x, dy, scale, bias)


def test_weights_have_the_rank_of_the_input_where_jax_insists():
    x, scale, bias = random(1, 3, 8), random(2, 8), random(3, 8)
    with jax.numpy_rank_promotion("raise"):
        y = jax.jit(jax.grad(lambda x, scale, bias: layer_norm(x, scale, bias).sum()))(x, scale, bias)
    assert y.shape == x.shape


def test_scan():
    x, dy, scale = random(1, 6, 32), random(2, 6, 32), random(3, 32)

    def loss(scale):
        return jax.lax.scan(lambda h, _: (rms_norm(h, scale, EPS), None), x, length=3)[0].ravel() @ dy.ravel()

    def plain(scale):
        h = x
        for _ in range(3):
            h = h * jax.lax.rsqrt(jnp.mean(jnp.square(h), -1, keepdims=True) + EPS) * scale
        return h.ravel() @ dy.ravel()

    np.testing.assert_allclose(jax.grad(loss)(scale), jax.grad(plain)(scale), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("check_axes", [True, False])
def test_shard_map(check_axes):
    """Rows are on two devices; the gradients of shared weights are sums over both."""
    from jax.sharding import Mesh, PartitionSpec as P

    x, dy, scale, bias = random(1, 10, 48), random(2, 10, 48), random(3, 48), random(4, 48)
    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))
    forward = jax.shard_map(lambda x, scale, bias: layer_norm(x, scale, bias, EPS), mesh=mesh,
                            in_specs=(P("rows"), P(), P()), out_specs=P("rows"), check_vma=check_axes)
    got = jax.jit(jax.grad(lambda *inputs: (forward(*inputs) * dy).sum(), (0, 1, 2)))(x, scale, bias)
    check("layernorm", got, x, dy, scale, bias)


def test_sharded_inputs_without_shard_map():
    """XLA gathers what it cannot partition: slower, but right."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    x, dy, scale, bias = random(1, 10, 48), random(2, 10, 48), random(3, 48), random(4, 48)
    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))
    rows, both = NamedSharding(mesh, P("rows")), NamedSharding(mesh, P())
    inputs = [jax.device_put(t, place) for t, place in ((x, rows), (scale, both), (bias, both))]
    loss = lambda *inputs: (layer_norm(*inputs, EPS) * jax.device_put(dy, rows)).sum()  # noqa: E731
    check("layernorm", jax.jit(jax.grad(loss, (0, 1, 2)))(*inputs), x, dy, scale, bias)


def test_same_bits():
    x, dy, scale, bias = random(1, 700, 512), random(2, 700, 512), random(3, 512), random(4, 512)
    run = jax.jit(lambda: gradients(norm_of("layernorm"), dy, x, scale, bias))
    first = run()
    for _ in range(20):
        assert all((a == b).all() for a, b in zip(first, run()))


def test_many_at_once():
    """Calls that share XLA's threads."""
    x, dy, scale = random(1, 8, 400, 256), random(2, 8, 400, 256), random(3, 256)
    run = jax.jit(lambda: [gradients(norm_of("rmsnorm"), dy[i], x[i], scale, None) for i in range(8)])
    for i, got in enumerate(run()):
        check("rmsnorm", got, x[i], dy[i], scale, None)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU's workspace is of a number of rows")
def test_export_for_any_rows():
    (rows,) = jax.export.symbolic_shape("rows")
    x, weight = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((rows, 65), (65,)))

    def backward(x, dy, scale, bias):
        return jax.vjp(norm_of("layernorm"), x, scale, bias)[1](dy)

    is_ours = jax.export.DisabledSafetyCheck.custom_call("normjit_backward")
    exported = jax.export.export(jax.jit(backward), disabled_checks=[is_ours])(x, x, weight, weight)
    for count in (1, 3, 700):
        x, dy, scale, bias = random(1, count, 65), random(2, count, 65), random(3, 65), random(4, 65)
        check("layernorm", exported.call(x, dy, scale, bias), x, dy, scale, bias)


def test_export_for_any_columns_is_refused():
    x = jax.ShapeDtypeStruct((4, *jax.export.symbolic_shape("cols")), "float32")
    with pytest.raises(normjit.InvalidArgument, match=r"x: its shape is \(4, cols\); the last dimension must be a number"):
        jax.export.export(jax.jit(jax.grad(lambda x: layer_norm(x).sum())))(x)


def test_export_for_any_rows_on_gpus_is_refused():
    shape = (*jax.export.symbolic_shape("rows"), 65)
    with pytest.raises(normjit.InvalidArgument, match=r"x: its shape is \(rows, 65\); on a GPU .* export it for numbers"):
        normjit.jax._count_rows(jax.ShapeDtypeStruct(shape, "float32"))


def test_bad_input():
    with pytest.raises(normjit.InvalidArgument, match=r"scale: its shape is \(5,\); must be \(4,\)"):
        layer_norm(jnp.ones((3, 4)), jnp.ones(5))
    with pytest.raises(normjit.InvalidArgument, match="x: its type is int32; allowed: float32, bfloat16, float16, float64"):
        rms_norm(jnp.ones((3, 4), dtype="int32"))
    with pytest.raises(normjit.InvalidArgument, match="x: has no dimensions"):
        rms_norm(jnp.float32(1))
    with pytest.raises(normjit.InvalidArgument, match="x: is None"):
        rms_norm(None)
    for wrong in ("text", object(), [[1.0], [2.0, 3.0]]):
        with pytest.raises(normjit.InvalidArgument, match="^x: JAX makes no array of it: "):
            rms_norm(wrong)
        with pytest.raises(normjit.InvalidArgument, match="^bias: JAX makes no array of it: "):
            layer_norm(jnp.ones((3, 4)), bias=wrong)
    with pytest.raises(normjit.InvalidArgument, match="^x: JAX makes no array of elements of type >f4: "):
        rms_norm(np.ones((3, 4), ">f4"))
    for epsilon in (-1.0, float("nan"), float("inf"), None, "small"):
        with pytest.raises(normjit.InvalidArgument, match=f"epsilon: {epsilon!r}; must be a finite number and at least 0"):
            layer_norm(jnp.ones((3, 4)), epsilon=epsilon)
    with pytest.raises(normjit.InvalidArgument, match=r"epsilon: Array\(\[1.\].*; must be a number"):
        layer_norm(jnp.ones((3, 4)), epsilon=jnp.ones(1))
    with pytest.raises(normjit.InvalidArgument, match="epsilon: is a tracer of JAX's; must be a known number"):
        jax.jit(lambda x, epsilon: layer_norm(x, epsilon=epsilon))(jnp.ones((3, 4)), 1e-5)
    jitted = jax.jit(lambda x, epsilon: layer_norm(x, epsilon=epsilon), static_argnames="epsilon")
    assert jitted(jnp.ones((3, 4)), epsilon=1e-5).shape == (3, 4)
    for offset in (float("nan"), None):
        with pytest.raises(normjit.InvalidArgument, match=f"scale_offset: {offset}; must be a finite number"):
            rms_norm(jnp.ones((3, 4)), jnp.ones(4), scale_offset=offset)


def test_arrays_are_never_written_to():
    """normjit's functions on arrays do not write to JAX's arrays, although their capsules do not say that they are
    read-only."""
    x = random(1, 3, 8)
    with pytest.raises(normjit.InvalidArgument, match="out: y: cannot be written to"):
        normjit.layer_norm(np.asarray(x), out={"y": jnp.zeros_like(x)})


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_tracers_have_no_data(transform):
    x, y = np.ones((3, 8), "float32"), np.ones((3, 8), "float32")
    for of in (lambda t: normjit.layer_norm(t, out={"y": y}), lambda t: normjit.rms_norm(x, residual=t).y):
        with pytest.raises(normjit.InvalidArgument, match="^(x|residual): is a tracer of JAX's, .* call normjit.jax"):
            transform(of)(jnp.ones((3, 8)))


def test_deleted_arrays():
    x, deleted = np.ones((3, 8), "float32"), jnp.ones((3, 8))
    deleted.delete()
    calls = {"x": lambda: normjit.layer_norm(deleted, out={"y": x}), "y": lambda: normjit.layer_norm(x, out={"y": deleted}),
             "residual": lambda: normjit.rms_norm(x, residual=deleted)}
    for name, call in calls.items():
        with pytest.raises(normjit.InvalidArgument, match=f"^{name}: is an array of JAX's that was deleted"):
            call()


@pytest.mark.parametrize("norm", [layer_norm, lambda x: normjit.jax.formula("softmax")(x=x)])
def test_outside_jit_nothing_is_compiled_again(norm, caplog):
    def compute():
        return norm(random(1, 2, 4)), jax.grad(lambda x: norm(x).sum())(random(1, 2, 4)), jax.vmap(norm)(random(1, 3, 2, 4))

    compute()
    with jax.log_compiles():
        compute()
    assert "ompil" not in caplog.text
