# SPDX-License-Identifier: Apache-2.0
# needs: numpy jax
"""Further derivatives of formulas in JAX, against those of functions written in jax.numpy."""
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # for shard_map

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import normjit  # noqa: E402
import normjit.jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

jax.config.update("jax_enable_x64", True)

EPS = 1e-5


def random(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def rstd(x):
    return jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS)


def gated(x, z, gamma):
    return x * rstd(x) * gamma * jax.nn.silu(z)


def groups(x, gamma, beta):
    centred = x - x.mean(-1, keepdims=True)
    gamma, beta = (each.repeat(4, -1)[:, None] for each in (gamma, beta))
    return centred * rstd(centred) * gamma + beta


def rotated(x, gamma, cos, sin):
    h = x * rstd(x) * gamma
    return h * cos + jnp.concatenate([h[..., 4:], h[..., :4]], -1) * sin


WHERE = "norm n(x[M,N], w[N], a[]) -> y[M,N], s[M] { t = row_max(x); y = where(x, x ^ 3 * w, exp2(x) / (1 + a * a)) - t; s = row_norm(x) }"
RUNS = "norm n(x[M,N], w[N/4], z[M,N]) -> y[M,N] { y = softplus(x) * w + neighbour(x) * gelu(z) + clamp(x, -1, 1) * erf(z) }"
SUMS = "norm n(x[M,N], z[M,N]) -> y[M,N], t[N] { y = tanh(x) * sigmoid(z) + relu(x) * row_min(z); t = col_sum(x * z) }"
SLICES = "norm n(x[S,M,N], scale[S,N], w[M,N], b[N]) -> y[S,M,N] { y = (x - row_mean(x)) * (1 + scale) * w + log1p(x * x) * b }"


def chosen(x, w, a):
    y = jnp.where(x > 0, x**3 * w, 2.0**x / (1 + a * a)) - x.max(-1, keepdims=True)
    return y, jnp.sqrt((x * x).sum(-1))


def in_runs(x, w, z):
    swapped = x.reshape(3, 4, 2)[..., ::-1].reshape(3, 8)
    erf = jax.scipy.special.erf(z)
    return jnp.logaddexp(x, 0) * w.repeat(4) + swapped * z * (1 + jax.scipy.special.erf(z / 2**0.5)) / 2 + jnp.clip(x, -1, 1) * erf


CASES = {  # a formula's text, the same in jax.numpy, arrays
    "softmax": ("softmax", lambda x: jax.nn.softmax(x, -1), {"x": random(1, 3, 8)}),
    "gated_rmsnorm": ("gated_rmsnorm", gated, {"x": random(1, 3, 8), "z": random(2, 3, 8), "gamma": random(3, 8)}),
    "rotation": ("qk_norm_rope", rotated, {"x": random(1, 2, 3, 8), "gamma": random(2, 8), "cos": random(3, 3, 8), "sin": random(4, 3, 8)}),
    "groupnorm": ("groupnorm", groups, {"x": random(1, 2, 3, 8), "gamma": random(2, 2, 2), "beta": random(3, 2, 2)}),
    "where": (WHERE, chosen, {"x": random(1, 3, 8), "w": random(2, 8), "a": random(3)}),
    "runs": (RUNS, in_runs, {"x": random(1, 3, 8), "w": random(2, 2), "z": random(3, 3, 8)}),
    "sums": (SUMS, lambda x, z: (jnp.tanh(x) * jax.nn.sigmoid(z) + jax.nn.relu(x) * z.min(-1, keepdims=True), (x * z).sum(0)),
             {"x": random(1, 3, 8), "z": random(2, 3, 8)}),
    "slices": (SLICES, lambda x, scale, w, b: (x - x.mean(-1, keepdims=True)) * (1 + scale[:, None]) * w + jnp.log1p(x * x) * b,
               {"x": random(1, 2, 3, 8), "scale": random(2, 2, 8), "w": random(3, 3, 8), "b": random(4, 8)}),
}


def loss_of(function, fixed):
    """Returns a function of the arrays that may have gradients."""
    def loss(given):
        made = function(**given, **fixed)
        return sum(jnp.sin(each).sum() for each in (made if isinstance(made, tuple) else (made,)))

    return loss


def of_gradients_norm(loss, given):
    return jax.jit(jax.grad(lambda given: sum(jnp.square(each).sum() for each in jax.tree.leaves(jax.grad(loss)(given)))))(given)


def third(loss, given):
    of = lambda given: sum((each**3).sum() for each in jax.tree.leaves(jax.grad(loss)(given)))  # noqa: E731
    return jax.grad(lambda given: sum(jnp.sin(each).sum() for each in jax.tree.leaves(jax.grad(of)(given))))(given)


def of_batch(loss, given):
    return jax.vmap(jax.hessian(loss))(jax.tree.map(lambda each: jnp.stack([each, each * 0.5]), given))


DERIVATIVES = {
    "hessian": lambda loss, given: jax.hessian(loss)(given),
    "reverse over reverse": lambda loss, given: jax.jacrev(jax.grad(loss))(given),
    "gradient penalty": of_gradients_norm,
    "third": third,
    "checkpoint": lambda loss, given: of_gradients_norm(jax.checkpoint(loss), given),
    "batch": of_batch,
}


@pytest.mark.parametrize("case, which", [
    *((case, "hessian") for case in CASES), *(("gated_rmsnorm", which) for which in DERIVATIVES if which != "hessian")])
def test_further_derivatives_of_formulas(case, which):
    text, function, arrays = CASES[case]
    norm = normjit.jax.formula(text)
    shared = {name: each for name, each in arrays.items() if normjit.formula(text).axes(name) == "M,N" and "[S" in norm.norm.text}
    given = {name: each for name, each in arrays.items() if name not in shared}
    numbers = {"R": 4} if case == "groupnorm" else {}
    got = DERIVATIVES[which](loss_of(norm, {**shared, **numbers}), given)
    wanted = DERIVATIVES[which](loss_of(function, shared), given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * float(jnp.abs(b).max()) + 1e-12), got, wanted)


def test_further_derivatives_on_several_devices():
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    x, z, gamma = random(1, 4, 8), random(2, 4, 8), random(3, 8)

    def found(norm):
        def of(x, z, gamma):
            loss = lambda gamma: jax.lax.psum(jnp.sin(norm(x=x, z=z, gamma=gamma)).sum(), "rows")  # noqa: E731
            return jax.grad(lambda gamma: jnp.square(jax.grad(loss)(gamma)).sum())(gamma)
        return jax.jit(jax.shard_map(of, mesh=mesh, in_specs=(P("rows"), P("rows"), P()), out_specs=P()))(x, z, gamma)

    np.testing.assert_allclose(found(normjit.jax.formula("gated_rmsnorm")), found(gated), rtol=1e-10)


def test_strict_promotion_and_types():
    """Second derivatives in bf16, where JAX may neither promote types nor ranks."""
    norm = normjit.jax.formula("gated_rmsnorm")
    given = {"x": random(1, 3, 8), "z": random(2, 3, 8), "gamma": random(3, 8)}
    narrow = jax.tree.map(lambda each: each.astype(jnp.bfloat16), given)
    exact = of_gradients_norm(loss_of(gated, {}), jax.tree.map(lambda each: each.astype(float), narrow))
    loss = lambda given: jnp.sin(norm(**given).astype(jnp.float32)).sum()  # noqa: E731
    squares = lambda given: sum(jnp.square(each.astype(jnp.float32)).sum() for each in jax.tree.leaves(jax.grad(loss)(given)))  # noqa: E731
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        got = jax.grad(squares)(narrow)
    for name, each in got.items():
        assert each.dtype == jnp.bfloat16
        np.testing.assert_allclose(each.astype(float), exact[name], atol=0.05 * float(jnp.abs(exact[name]).max()))


def test_outputs_of_8_bits():
    """Rounding has the derivative of its operand."""
    norm = normjit.jax.formula("norm n(x[M,N]) -> y[M,N], s[M] { y = x * 30; s = row_mean(x * x) }")
    x = random(1, 3, 8).astype(jnp.float32)
    of_s = jax.hessian(lambda x: norm(x=x, dtypes={"y": "int8"}).s.sum())(x)
    np.testing.assert_allclose(of_s.reshape(24, 24), np.eye(24) * 2 / 8, rtol=1e-6)
    of_y = jax.hessian(lambda x: jnp.square(norm(x=x, dtypes={"y": jnp.float8_e4m3fn}).y.astype(float)).sum())(x)
    np.testing.assert_allclose(of_y.reshape(24, 24), np.eye(24) * 2 * 30 * 30, rtol=0.1)


def test_forward_mode_is_refused():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: normjit.jax.formula("softmax")(x=x), (random(1, 2, 4),), (random(2, 2, 4),))


def test_the_gradient_of_abs_is_0_at_0():
    norm = normjit.jax.formula("norm n(x[M,N]) -> y[M,N] { y = abs(x) * x * x + abs(x) }")
    x = jnp.asarray([[0.0, 2.0, -1.0, 0.0]])
    np.testing.assert_array_equal(jax.grad(lambda x: norm(x=x).sum())(x), [[0, 13, -4, 0]])
    of_gradient = jax.grad(lambda x: (jax.grad(lambda x: norm(x=x).sum())(x) * x).sum())(x)
    np.testing.assert_array_equal(of_gradient, [[0, 13 + 2 * 12, -4 - 6, 0]])


def test_the_frameworks_have_the_same_functions():
    pytest.importorskip("torch")
    from normjit import _jax_composition
    from normjit.torch import composition

    assert _jax_composition.FUNCTIONS.keys() == composition.FUNCTIONS.keys()
