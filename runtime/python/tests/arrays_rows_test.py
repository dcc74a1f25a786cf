# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""Kernels are made for about as many rows as a call has."""
import normjit
import numpy as np
import pytest
from normjit import _library


@pytest.fixture
def prepared(monkeypatch):
    """Returns a list that gets the rows and on_miss of each kernel that is asked for."""

    class Asked(list):
        refuses = False

    asked, prepare = Asked(), _library.library.normjit_prepare

    def spied(engine, spec, options, kernel):
        asked.append((options._obj.expected_rows, options._obj.on_miss))
        if asked.refuses and options._obj.on_miss == 0:
            return prepare(None, spec, options, kernel)  # an error, as while a graph is being captured
        return prepare(engine, spec, options, kernel)

    monkeypatch.setattr(_library.library, "normjit_prepare", spied)
    return asked


@pytest.mark.parametrize("cols, norm", [
    (1234, lambda x: normjit.rms_norm(x)[0]), (1235, lambda x: normjit.formula("l2norm")(x=x, eps=0.0)[0])])
def test_rows(prepared, cols, norm):
    x = np.random.default_rng(1).standard_normal((40, 5, cols), np.float32)
    right = x / np.sqrt((x.astype(float) ** 2).sum(-1, keepdims=True)) * (np.sqrt(cols) if cols == 1234 else 1)
    np.testing.assert_allclose(norm(x), right, rtol=1e-4, atol=1e-6)
    norm(x)
    norm(x[:1])
    assert prepared == [(200, 0), (5, 0)]


@pytest.mark.parametrize("cols, norm", [
    (1236, lambda x: normjit.rms_norm(x)[0]), (1237, lambda x: normjit.formula("l2norm")(x=x, eps=0.0)[0])])
def test_a_kernel_for_other_rows_stands_in(prepared, cols, norm):
    x = np.random.default_rng(1).standard_normal((100, cols), np.float32)
    prepared.refuses = True
    with pytest.raises(normjit.Error, match="engine"):
        norm(x)
    prepared.refuses = False
    one = norm(x[:1])
    prepared.refuses = True
    np.testing.assert_allclose(norm(x)[:1], one, rtol=1e-6)
    prepared.refuses = False
    prepared.clear()
    norm(x)
    assert prepared == [(100, 0)]  # the other was not kept
    norm(x)
    assert len(prepared) == 1
