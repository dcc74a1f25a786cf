# SPDX-License-Identifier: Apache-2.0
# needs: numpy jax
"""Further derivatives of normjit.jax's norms, against those of norms written in jax.numpy."""
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # for shard_map

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import normjit.jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

jax.config.update("jax_enable_x64", True)

EPS = 1e-5


def random(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def written(x, scale=None, bias=None, has_mean=True, scale_offset=0.0):
    centred = x - x.mean(-1, keepdims=True) if has_mean else x
    y = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPS)
    y = y if scale is None else y * (scale + scale_offset)
    return y if bias is None else y + bias


NORMS = {  # normjit's, and the same in jax.numpy
    "layernorm": (lambda x, scale, bias: normjit.jax.layer_norm(x, scale, bias, EPS), written),
    "layernorm without weights": (lambda x, scale, bias: normjit.jax.layer_norm(x, epsilon=EPS), lambda x, *_: written(x)),
    "rmsnorm": (lambda x, scale, bias: normjit.jax.rms_norm(x, scale, EPS),
                lambda x, scale, _: written(x, scale, has_mean=False)),
    "zero-centred rmsnorm": (lambda x, scale, bias: normjit.jax.rms_norm(x, scale, EPS, scale_offset=1.0),
                             lambda x, scale, _: written(x, scale, None, False, 1.0)),
}


def hessian(f, x, scale, bias):
    return jax.hessian(f, argnums=(0, 1, 2))(x, scale, bias)


def of_gradients_norm(f, x, scale, bias):
    return jax.jit(jax.grad(lambda x: jnp.square(jax.grad(f)(x, scale, bias)).sum()))(x)


def third(f, x, scale, bias):
    of = jax.grad(lambda x: (jax.grad(f)(x, scale, bias) ** 3).sum())
    return jax.grad(lambda x: jnp.sin(of(x)).sum())(x)


def meta_learning(f, x, scale, bias):
    return jax.grad(lambda w: f(x, w - 0.1 * jax.grad(f, argnums=1)(x, w, bias), bias))(scale)


def first_order_meta_learning(f, x, scale, bias):
    return jax.grad(lambda w: f(x, w - 0.1 * jax.lax.stop_gradient(jax.grad(f, argnums=1)(x, w, bias)), bias))(scale)


def for_each(f, x, scale, bias):
    both = jnp.stack([scale, 2 * scale])
    return jax.vmap(jax.hessian(f, argnums=1), (None, 0, None))(x, both, bias)


def checkpointed(f, x, scale, bias):
    return jax.grad(lambda x: jax.checkpoint(jax.grad(f))(x, scale, bias)[0, 0])(x)


@pytest.mark.parametrize("of", [hessian, of_gradients_norm, third, meta_learning, first_order_meta_learning, for_each, checkpointed])
@pytest.mark.parametrize("norm", NORMS)
def test_further_derivatives(norm, of):
    target = random(3, 3, 8)
    got, wanted = (of(lambda *given: (jnp.sin(each(*given)) * target).sum(), random(0, 3, 8), random(1, 8), random(2, 8))
                   for each in NORMS[norm])
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted)):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_types_of_further_derivatives(dtype):
    given = [random(seed, *shape).astype(dtype) for seed, shape in ((0, (3, 8)), (1, (8,)), (2, (8,)))]
    got = of_gradients_norm(lambda *given: jnp.sin(NORMS["layernorm"][0](*given)).astype("float32").sum(), *given)
    wanted = of_gradients_norm(lambda *given: jnp.sin(written(*given)).sum(), *(each.astype("float64") for each in given))
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype("float64"), wanted, atol={"float32": 1e-5}.get(dtype, 0.15))


@pytest.mark.parametrize("norm", NORMS)
def test_further_derivatives_where_jax_insists_on_ranks_and_types(norm):
    given = [random(seed, *shape).astype("float32") for seed, shape in ((0, (3, 8)), (1, (8,)), (2, (8,)))]
    f = lambda *given: jnp.sin(NORMS[norm][0](*given)).sum()  # noqa: E731
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        got = hessian(f, *given)
    jax.tree.map(np.testing.assert_array_equal, got, hessian(f, *given))


def test_further_derivatives_on_several_devices():
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    x, scale, bias = random(0, 4, 8), random(1, 8), random(2, 8)

    def found(norm):
        def of(x, scale):
            loss = lambda scale: jax.lax.psum(jnp.sin(norm(x, scale, bias)).sum(), "rows")  # noqa: E731
            return jax.grad(lambda scale: loss(scale - 0.1 * jax.grad(loss)(scale)))(scale)
        return jax.jit(jax.shard_map(of, mesh=mesh, in_specs=(P("rows"), P()), out_specs=P()))(x, scale)

    np.testing.assert_allclose(*map(found, NORMS["layernorm"]), rtol=1e-10)
