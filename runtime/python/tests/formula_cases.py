# SPDX-License-Identifier: Apache-2.0
"""A formula, and random matrices for formulas."""
import numpy

GATED = """norm gated(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M]
    rstd = rsqrt(row_mean(x * x) + eps)   # of each row
    y    = x * rstd * gamma * sigmoid(z)
"""
RANDOM = numpy.random.default_rng(7)


def normal(*shape, dtype=numpy.float32):
    return RANDOM.standard_normal(shape).astype(dtype)
