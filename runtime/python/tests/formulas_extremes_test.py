# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""normjit.formula: gradients of zeros, of numbers whose squares are out of range, and of rounded numbers; and outputs
in the place of inputs that other outputs copy."""
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


@pytest.mark.parametrize("scale", [1e-17, 1e-14, 1e-7, 1e7, 1e14, 1e17])
@pytest.mark.parametrize("scale_of_z", [None, 1])
def test_gradients_of_cosines_of_short_and_long_vectors(scale, scale_of_z):
    x, z, dy = normal(3, 70) * numpy.float32(scale), normal(3, 70) * numpy.float32(scale_of_z or scale), normal(3)
    norm = normjit.formula("norm f(x[M,N], z[M,N]) -> y[M] { a = sqrt(max(row_sum(x * x), tiny)); "
                           "b = sqrt(max(row_sum(z * z), tiny)); y = row_sum((x / a) * (z / b)) }")
    got = norm.backward(x=x, z=z, dy=dy, tiny=1e-37)
    wide, other = x.astype(float), z.astype(float)
    a, b = (numpy.linalg.norm(each, axis=-1, keepdims=True) for each in (wide, other))
    cosine = ((wide / a) * (other / b)).sum(-1, keepdims=True)
    for gradient, wanted in (got.dx, dy[:, None] * (other / b - cosine * wide / a) / a), (
            got.dz, dy[:, None] * (wide / a - cosine * other / b) / b):
        numpy.testing.assert_allclose(gradient.astype(float), wanted, rtol=1e-5, atol=1e-6 * abs(wanted).max())


@pytest.mark.parametrize("body", ["y = partner(x); u = z * 2", "y = partner(x) + 0; u = -z", "y = z + 0; u = x * 1"])
@pytest.mark.parametrize("places", [{"y": "x"}, {"u": "z"}, {"y": "x", "u": "z"}, {"y": "z", "u": "x"}])
def test_copies_of_inputs_in_their_place(body, places):
    norm = normjit.formula(f"norm f(x[M,N], z[M,N]) -> y[M,N], u[M,N] {{ {body} }}")
    given = {"x": normal(3, 70), "z": normal(3, 70)}
    wanted = norm(**given)
    given = {name: each.copy() for name, each in given.items()}
    got = norm(**given, out={output: given[name] for output, name in places.items()})
    for one, other in zip(got, wanted):
        numpy.testing.assert_array_equal(one, other)


def test_the_gradient_of_a_rounded_row_value_is_rounded_whole():
    x, z, dy = normal(3, 4096), normal(3, 4096), normal(3, 4096) * numpy.float32(1e-5)
    norm = normjit.formula("norm f(x[M,N], z[M,N]) -> y[M,N] { y = z * round_f16(row_sum(x)) }")
    exact = (dy.astype(float) * z).sum(-1, keepdims=True)
    got = norm.backward(x=x, z=z, dy=dy).dx
    numpy.testing.assert_allclose(got, numpy.broadcast_to(exact, got.shape), rtol=2**-11, atol=2**-25)


def test_a_row_value_beside_the_gradient_of_a_number_in_memory():
    x, dy, dm, c = normal(3, 70), normal(3, 70), normal(3), normal(1) + numpy.float32(3)
    norm = normjit.formula("norm f(x[M,N], c[]) -> y[M,N], m[M] { m = row_mean(x) / c; y = x * m }")
    dx, dc = norm.backward(x=x, c=c, dy=dy, dm=dm, outputs=("dx", "dc"))
    wide = x.astype(float)
    of_m = (dy * wide).sum(-1) + dm
    numpy.testing.assert_allclose(dc, -(of_m * wide.mean(-1)).sum() / float(c[0]) ** 2, rtol=1e-5)
    wanted = dy * wide.mean(-1, keepdims=True) / c[0].astype(float) + of_m[:, None] / c[0].astype(float) / 70
    numpy.testing.assert_allclose(dx, wanted, rtol=1e-4, atol=1e-6)


def test_the_largest_of_all_slices():
    x, gamma = normal(2, 3, 9), normal(2, 9)
    norm = normjit.formula("norm f(x[S,M,N], gamma[S,N]) -> y[S,M,N], amax[] { y = x * gamma; amax = max_abs(y) }")
    y, amax = norm(x=x, gamma=gamma)
    assert amax == abs(y).max()


def test_the_gradient_of_a_row_value_passes_unchanged():
    x, r, dy, dm = normal(3, 1000), normal(3), normal(3, 1000), normal(3)
    norm = normjit.formula("norm f(x[M,N], r[M]) -> y[M,N], m[M] { y = x * 2; m = -r }")
    numpy.testing.assert_array_equal(norm.backward(x=x, r=r, dy=dy, dm=dm, outputs=("dx", "dr")).dr, -dm)
