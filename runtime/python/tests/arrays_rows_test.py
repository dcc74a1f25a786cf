# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""Kernels are made for about as many rows as a call has."""
import normjit
import numpy as np
import pytest
from normjit import _library

FAILED, CAPTURING = 3, 5  # normjit_status


@pytest.fixture
def prepared(monkeypatch):
    """Returns a list that receives the rows and on_miss of each kernel that is asked for."""

    class Asked(list):
        refusal = 0  # the status with which kernels are not made

    asked, prepare = Asked(), _library.library.normjit_prepare

    def spied(engine, spec, options, kernel):
        asked.append((options._obj.expected_rows, options._obj.on_miss))
        if asked.refusal and options._obj.on_miss == 0:
            return asked.refusal if prepare(None, spec, options, kernel) else 0
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
    prepared.refusal = CAPTURING
    with pytest.raises(normjit.Error, match="engine"):
        norm(x)
    prepared.refusal = 0
    one = norm(x[:1])
    prepared.refusal = CAPTURING
    np.testing.assert_allclose(norm(x)[:1], one, rtol=1e-6)
    prepared.refusal = FAILED
    with pytest.raises(normjit.Error, match="engine"):  # a kernel that would serve does not hide a fault
        norm(x)
    prepared.refusal = 0
    prepared.clear()
    norm(x)
    assert prepared == [(100, 0)]  # the other one was not kept
    norm(x)
    assert len(prepared) == 1
