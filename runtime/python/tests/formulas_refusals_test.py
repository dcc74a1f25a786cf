# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""Texts of formulas and arguments of their calls that are refused, and what the messages say."""
import normjit
import numpy
import pytest
from formula_cases import GATED, normal


@pytest.mark.parametrize("text, message", [
    ("norm f(x[M,N]) -> y[M,N] { y = x * r }", "r is missing"),
    ("norm f(x[M,N]) -> y[M,N] { y = (x * 2 }", r"line 1, column 39: \+ - \* / \^ or '\)' expected, not '}'"),
    ("norm f(x[M,N]) -> y[M] { y = x * 2 }", r"the output 'y' is \[M,N\]; declared is \[M\]"),
    ("norm f(x[M,N], g[N]) -> y[N] { y = row_mean(g) }", r"row_mean of \[N\]; must be of \[M,N\]"),
    ("norm f(x[M,Q]) -> y[M,N] { y = x }", r"\[M,Q\] is none of the axes"),
    ("norm f(x[M,N]) -> y[M,N] { y = nosuch(x) }", "unknown operation 'nosuch'"),
    ("norm f(x[M,N]) -> y[M,N] { z = x * 2 }", "the output 'y' has no value"),
    ("norm f(x[M,N]) -> y[M,N] { y = x * 2", "'}' expected"),
    ("nosuch", "formula: 'nosuch': a text begins with 'norm'; norms of the library: layernorm "), ("softmx", "did you mean 'softmax'"),
    ("(x[M,N]) -> y[M,N]", "'norm' expected"),
])
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        normjit.formula(text)(x=normal(2, 3), g=normal(3)) if "g[N]" in text else normjit.formula(text)(x=normal(2, 3))


def test_a_wrong_body_is_refused_at_once():
    with pytest.raises(normjit.InvalidArgument, match="line 3, column 9: unknown operation 'sigmod'"):
        normjit.formula("norm f(x[M,N]) -> y[M,N]\n    z = x * x\n    y = sigmod(z)")


def test_nothing_by_default():
    x = normal(3, 8)
    constant = normjit.formula("norm f(x[M,N]) -> y[M,N] { y = detach(x) }")
    with pytest.raises(normjit.InvalidArgument, match="outputs: is missing; the gradients of all matrices and columns are 0"):
        constant.backward(x=x, dy=x)
    with pytest.raises(normjit.InvalidArgument, match="outputs: is missing; all outputs are optional"):
        normjit.formula("norm f(x[M,N]) -> y?[M,N] { y = x * 2 }")(x=x)
    row = normjit.formula("norm f(x[M,N], r[M]) -> y[M,N] { y = detach(x) * r }")
    assert row.backward(x=x, r=x[:, 0].copy(), dy=x, out={"dr": x[:, 0].copy()}).dr.shape == (3,)


@pytest.mark.parametrize("arguments, message", [
    (dict(outputs="y", out={"nope": None}), "out: nope; allowed: y, rstd"),
    (dict(outputs="y", out={"rstd": None}), "out: rstd: not among the outputs"),
    (dict(out={"nope": None}), "nope; allowed: y, rstd"),
    (dict(out=numpy.zeros((4, 9))), "out: is ndarray; must be a mapping"),
    (dict(out=(None,)), "out: is tuple; must be a mapping"),
    (dict(outputs=3), "outputs: 3; must be names of y, rstd"),
    (dict(outputs=[3]), r"outputs: \[3\]; must be names of y, rstd"),
    (dict(outputs=[]), "outputs: none; allowed: y, rstd"),
    (dict(eps="1"), "eps: '1'; must be a finite number"),
    (dict(eps=numpy.ones(2)), "eps: array.*; must be a finite number"),
    (dict(gama=numpy.ones(9, "f4")), "gama: the formula has nothing of this name"),
    (dict(sigmoid=1.0), "sigmoid: the formula has nothing of this name"),
    (dict(rows=4.0), "rows: the formula has nothing of this name"),
])
def test_arguments_that_do_not_fit(arguments, message):
    x = normal(4, 9)
    with pytest.raises(normjit.InvalidArgument, match=message):
        normjit.formula(GATED)(x=x, z=x, **arguments)


def test_what_compares_as_a_number_but_is_none():
    class Comparable:
        def __lt__(self, other):
            return True

        __gt__ = __lt__

    x = normal(4, 9)
    with pytest.raises(normjit.InvalidArgument, match="eps: .*; must be a number"):
        normjit.formula(GATED)(x=x, z=x, eps=Comparable())
    numpy.testing.assert_array_equal(normjit.formula(GATED)(x=x, z=x, eps=numpy.float64(0.5)).y,
                                     normjit.formula(GATED)(x=x, z=x, eps=0.5).y)


def test_a_gradient_that_is_missing_is_named():
    x = normal(4, 9)
    with pytest.raises(normjit.InvalidArgument, match="^dy: is missing"):
        normjit.formula(GATED).backward(x=x, z=x)


@pytest.mark.parametrize("text", [["a"], {}, b"l2norm", 3])
def test_what_is_no_text(text):
    with pytest.raises(normjit.InvalidArgument, match=f"formula: is {type(text).__name__}; must be a str"):
        normjit.formula(text)
