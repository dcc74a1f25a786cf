# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""normjit.formula: gradients of zeros, and of numbers whose squares are out of range."""
import normjit
import numpy
import pytest

RANDOM = numpy.random.default_rng(7)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(numpy.float32)


def test_gradients_of_rows_of_zeros():
    x, dy = normal(3, 9), normal(3, 9)
    x[1] = 0
    got = normjit.formula("norm f(x[M,N]) -> y[M,N] { y = x / max(row_norm(x), 0.01) }").backward(x=x, dy=dy).dx
    numpy.testing.assert_allclose(got[1], dy[1] * 100, rtol=1e-5)
    size = numpy.linalg.norm(x[0].astype(float))
    numpy.testing.assert_allclose(got[0], dy[0] / size - x[0] * (x[0] @ dy[0]) / size**3, rtol=1e-4, atol=1e-6)
    power = normjit.formula("norm f(x[M,N]) -> y[M,N] { y = abs(x) ^ p + x }")
    got = power.backward(x=x, dy=dy, p=1.7).dx
    numpy.testing.assert_allclose(got, dy * (1.7 * abs(x.astype(float)) ** 0.7 * numpy.sign(x) + 1), rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_gradients_beside_squares_that_are_out_of_range(scale):
    x, dy = normal(3, 9), normal(3, 9)
    norm = normjit.formula("norm f(x[M,N]) -> y[M,N] { y = x / max(row_sum(abs(x)), eps) }")
    got = norm.backward(x=x * numpy.float32(scale), dy=dy, eps=1e-30).dx
    wide = x.astype(float) * scale
    size = abs(wide).sum(-1, keepdims=True)
    wanted = dy / size - numpy.sign(x) * ((wide / size) * dy).sum(-1, keepdims=True) / size
    numpy.testing.assert_allclose(got.astype(float), wanted, rtol=1e-4, atol=1e-5 * abs(wanted).max())
