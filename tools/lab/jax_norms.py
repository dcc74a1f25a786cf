#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what JAX's norms gain from normjit: jitted gradients by XLA and by normjit.jax, in turn.

    PYTHONPATH=build/python jax_norms.py [--rounds 15] [--json FILE] [SHAPE ...]

SHAPE: 512x768 or 4096x4096:bf16 for LayerNorm, rms:2048x768 for RMSNorm, gated:512x768 for a formula, RMSNorm with a
gate after it. The forward pass of the first two norms is the same jax.numpy for XLA and normjit, in the same jitted
function. Times are medians of rounds in which the two take turns; a round waits for its calls at the end. The error is
the relative error of scale's gradient in the 2-norm."""
import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import normjit.jax
import numpy as np

TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
SHAPES = ["8x256", "512x768", "2048x768:bf16", "4096x4096", "4096x4096:bf16", "rms:512x768", "rms:4096x4096:bf16", "gated:512x768",
          "gated:4096x4096:bf16"]
NORMS = {"rms": "rmsnorm", "gated": "gated_rmsnorm"}
GATED = normjit.jax.formula("gated_rmsnorm")
EPS = 1e-5
ROUND_SECONDS = 0.05


def plain(norm, x, scale, other):
    """Computes the norm as users write it: in f32, rounded once. `other` is the bias or the gate."""
    h = x.astype(jnp.float32)
    if norm == "layernorm":
        h = h - jnp.mean(h, -1, keepdims=True)
    y = h * jax.lax.rsqrt(jnp.mean(jnp.square(h), -1, keepdims=True) + EPS) * scale.astype(jnp.float32)
    if norm == "layernorm":
        y = y + other.astype(jnp.float32)
    if norm == "gated_rmsnorm":
        y = y * jax.nn.silu(other.astype(jnp.float32))
    return y.astype(x.dtype)


def by_normjit(norm, x, scale, other):
    if norm == "layernorm":
        return normjit.jax.layer_norm(x, scale, other, EPS)
    if norm == "gated_rmsnorm":
        return GATED(x=x, gamma=scale, z=other, eps=EPS)
    return normjit.jax.rms_norm(x, scale, EPS)


def gradients(function, norm):
    def of(x, scale, other, dy):
        return jax.vjp(lambda *inputs: function(norm, *inputs), x, scale, other)[1](dy)

    return jax.jit(of)


def right(norm, x, other, dy):
    x, other, dy = (np.asarray(t, dtype=np.float64) for t in (x, other, dy))
    if norm == "gated_rmsnorm":
        dy = dy * other / (1 + np.exp(-other))
    h = x - x.mean(1, keepdims=True) if norm == "layernorm" else x
    return (dy * h / np.sqrt((h**2).mean(1, keepdims=True) + EPS)).sum(0)


def seconds(call, count):
    begin = time.perf_counter()
    for _ in range(count):
        made = call()
    jax.block_until_ready(made)
    return (time.perf_counter() - begin) / count


def compare(text, rounds):
    prefix = text.partition(":")[0]
    norm = NORMS.get(prefix, "layernorm")
    size, _, kind = text.removeprefix(prefix + ":" if prefix in NORMS else "").partition(":")
    rows, cols = (int(n) for n in size.split("x"))
    random = np.random.default_rng(0)
    made = lambda *shape: jnp.asarray(random.standard_normal(shape), dtype=TYPES[kind or "f32"])  # noqa: E731
    other = made(rows, cols) if norm == "gated_rmsnorm" else made(cols)
    inputs = made(rows, cols), made(cols), other, made(rows, cols)
    calls = [lambda f=gradients(each, norm): f(*inputs) for each in (plain, by_normjit)]
    wanted = right(norm, inputs[0], inputs[2], inputs[3])
    errors = [np.linalg.norm(np.asarray(call()[1], np.float64) - wanted) / np.linalg.norm(wanted) for call in calls]
    counts = [max(1, int(ROUND_SECONDS / seconds(call, 3))) for call in calls]
    times = [[seconds(call, count) * 1e6 for call, count in zip(calls, counts)] for _ in range(rounds)]
    theirs, ours = (statistics.median(column) for column in zip(*times))
    print(f"{text:22} {theirs:10.1f} {ours:10.1f} {theirs / ours:6.2f} {errors[0]:12.1e} {errors[1]:13.1e}", flush=True)
    return {"case": text, "kind": f"{norm} backward", "us": [theirs, ours], "error": errors}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write what was measured")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}")
    print(f"{'shape':22} {'XLA us':>10} {'normjit us':>10} {'times':>6} {'XLA error':>12} {'normjit error':>13}")
    rows = [compare(shape, options.rounds) for shape in options.shapes]
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"jax": jax.__version__, "place": jax.devices()[0].device_kind, "results": rows}, file, indent=1)


if __name__ == "__main__":
    main()
