# SPDX-License-Identifier: Apache-2.0
"""Computes normjit's formulas in double precision, directly from the definition. Shares no code with the product."""
import numpy as np

STEP = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10, "float64": 2.0**-52}


def gradients(norm, x, dy, gamma=None, *, eps=1e-5, gamma_offset=0.0, dresidual=None):
    """Returns dx, dgamma, dbeta over the last dimension, in double, dx in x's shape."""
    shape = x.shape
    x, dy = (np.asarray(a, dtype=np.float64).reshape(-1, shape[-1]) for a in (x, dy))
    weight = 1.0 if gamma is None else np.asarray(gamma, dtype=np.float64) + gamma_offset
    centred = x - x.mean(1, keepdims=True) if norm == "layernorm" else x
    rstd = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + eps)
    xhat = centred * rstd
    g = dy * weight
    dx = g - xhat * (g * xhat).mean(1, keepdims=True)
    if norm == "layernorm":
        dx -= g.mean(1, keepdims=True)
    dx *= rstd
    if dresidual is not None:
        dx += np.asarray(dresidual, dtype=np.float64).reshape(dx.shape)
    return dx.reshape(shape), (dy * xhat).sum(0), dy.sum(0)


def layer(norm, x, gamma=None, beta=None, *, eps=1e-5, gamma_offset=0.0, residual=None, rowscale=None):
    """Returns y, h, mean, rstd, the statistics with 1 in place of the last dimension."""
    h = np.asarray(x, dtype=np.float64)
    if rowscale is not None:
        h = h * np.asarray(rowscale, dtype=np.float64).reshape(*h.shape[:-1], 1)
    if residual is not None:
        h = h + np.asarray(residual, dtype=np.float64)
    mean, rstd = statistics(norm, h, eps)
    y = (h - mean) * rstd
    y = y if gamma is None else y * (np.asarray(gamma, dtype=np.float64) + gamma_offset)
    return y if beta is None else y + np.asarray(beta, dtype=np.float64), h, mean, rstd


def statistics(norm, x, eps=1e-5):
    x = np.asarray(x, dtype=np.float64)
    mean = x.mean(-1, keepdims=True) if norm == "layernorm" else np.zeros_like(x[..., :1])
    return mean, 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)


def assert_close(got, wanted, dtype, what=""):
    """Asserts equality up to the type's spacing and errors of f32 arithmetic. The error is relative to the largest
    element, or to 1 (the size of the tests' data) if that is larger, because gradients may cancel."""
    got = np.asarray(got, dtype=np.float64)
    assert got.shape == wanted.shape, f"{what}: {got.shape} instead of {wanted.shape}"
    if wanted.size == 0:
        return
    bound = 0.51 * STEP[dtype] + (1e-13 if dtype == "float64" else 4e-6)
    error = np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1.0)
    assert error <= bound, f"{what}: {error:.3g} of the largest element wrong; at most {bound:.3g}"
