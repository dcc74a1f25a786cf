# SPDX-License-Identifier: Apache-2.0
# needs: numpy jax flatbuffers
"""Programs that jax.export writes run in another process, which has only imported normjit.jax."""
import jax
import jax.numpy as jnp
import numpy as np
import processes
import pytest
import reference
from jax import export
from normjit.jax import formula, layer_norm, rms_norm

CHECKS = [export.DisabledSafetyCheck.custom_call("normjit_backward")]
COLS = 65
RUN = """
import sys
import numpy as np
import normjit.jax
from jax import export

program, inputs, outputs = sys.argv[1:]
exported = export.deserialize(open(program, "rb").read())
given = np.load(inputs)
np.savez(outputs, *exported.call(*(given[name] for name in given)))
"""


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def elsewhere(exported, folder, *inputs):
    """Returns what an exported program returns in another process."""
    (folder / "program").write_bytes(exported.serialize())
    np.savez(folder / "inputs.npz", *inputs)
    done = processes.run_program(RUN, *(str(folder / name) for name in ("program", "inputs.npz", "outputs.npz")))
    assert done.returncode == 0, done.stderr
    found = np.load(folder / "outputs.npz")
    return [found[name] for name in found]


def check(found, x, dy, scale, norm="layernorm"):
    for what, got, wanted in zip(("dx", "dscale", "dbias"), found, reference.gradients(norm, x, dy, scale, eps=1e-5)):
        reference.assert_close(got, wanted, "float32", what)


def specs(*arrays):
    return [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in arrays]


def test_gradient(tmp_path):
    x, dy, scale, bias = random(1, 12, COLS), random(2, 12, COLS), random(3, COLS), random(4, COLS)
    backward = jax.grad(lambda x, scale, bias, dy: (layer_norm(x, scale, bias, 1e-5) * dy).sum(), (0, 1, 2))
    exported = export.export(jax.jit(backward), disabled_checks=CHECKS)(*specs(x, scale, bias, dy))
    check(elsewhere(exported, tmp_path, x, scale, bias, dy), x, dy, scale)


def test_value_and_gradient_for_any_rows(tmp_path):
    (rows,) = export.symbolic_shape("rows")
    matrix, weight = jax.ShapeDtypeStruct((rows, COLS), "float32"), jax.ShapeDtypeStruct((COLS,), "float32")

    def both(x, scale, dy):
        y, pull = jax.vjp(lambda x, scale: rms_norm(x, scale, 1e-5), x, scale)
        return y, *pull(dy)

    exported = export.export(jax.jit(both), disabled_checks=CHECKS)(matrix, weight, matrix)
    x, dy, scale = random(1, 30, COLS), random(2, 30, COLS), random(3, COLS)
    y, *gradients = elsewhere(exported, tmp_path, x, scale, dy)
    check(gradients, x, dy, scale, "rmsnorm")
    _, rstd = reference.statistics("rmsnorm", x, 1e-5)
    reference.assert_close(y, x * rstd * scale, "float32")


def test_gradient_of_an_exported_layer(tmp_path):
    """serialize(vjp_order=1) also exports the backward pass of a forward pass."""
    x, scale = random(1, 12, COLS), random(2, COLS)
    exported = export.export(jax.jit(lambda x, scale: layer_norm(x, scale)), disabled_checks=CHECKS)(*specs(x, scale))
    again = export.deserialize(exported.serialize(vjp_order=1))
    dy = random(3, 12, COLS)
    check(jax.grad(lambda x, scale: (again.call(x, scale) * dy).sum(), (0, 1))(x, scale), x, dy, scale)


def test_is_refused_without_the_callers_consent():
    """JAX refuses every target that is not its own. If this fails one day, the README no longer needs
    disabled_checks."""
    with pytest.raises(ValueError, match="custom calls whose targets have no compatibility guarantees"):
        export.export(jax.jit(jax.grad(lambda x: layer_norm(x).sum())))(jnp.ones((3, COLS)))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU to export for")
def test_export_for_gpus_needs_one():
    """The workspace depends on the GPU, so there is no code for exports for another platform, and JAX refuses them."""
    with pytest.raises(NotImplementedError, match="cuda"):
        export.export(jax.jit(jax.grad(lambda x: layer_norm(x).sum())), platforms=["cuda"], disabled_checks=CHECKS)(
            jnp.ones((3, COLS)))


def test_import_starts_no_platform():
    """jax.distributed.initialize() and jax.config must come before the first platform."""
    done = processes.run_program(
        "import jax, normjit.jax; jax.config.update('jax_num_cpu_devices', 3); print(len(jax.devices()))")
    assert done.stdout.strip() == "3", done.stderr


def test_a_formula_for_any_rows(tmp_path):
    gated = formula("norm gated(x[M,N], gamma[N]) -> y[M,N] { y = x * rsqrt(row_mean(x * x) + eps) * gamma }")
    (rows,) = export.symbolic_shape("rows")
    matrix, weight = jax.ShapeDtypeStruct((rows, COLS), "float32"), jax.ShapeDtypeStruct((COLS,), "float32")
    backward = jax.grad(lambda x, gamma, dy: (gated(x=x, gamma=gamma) * dy).sum(), (0, 1))
    checks = [export.DisabledSafetyCheck.custom_call("normjit_formula")]
    exported = export.export(jax.jit(backward), disabled_checks=checks)(matrix, weight, matrix)
    x, dy, gamma = random(1, 9, COLS), random(2, 9, COLS), random(3, COLS)
    check(elsewhere(exported, tmp_path, x, gamma, dy), x, dy, gamma, "rmsnorm")
