# SPDX-License-Identifier: Apache-2.0
"""Draws random calls of normjit's operators and functions, states the rule that decides which are valid, and computes
their results in double precision. Shares no code with the product."""
import dataclasses
import math

import numpy as np
from guarded import LAYOUTS, strides_of

TYPES = ("float32", "bfloat16", "float16", "float64")
OTHER_TYPES = ("int32", "int64", "complex64", "bool", "uint8")
STEP = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10, "float64": 2.0**-52}
COLS = (1, 1, 2, 3, 5, 8, 16, 17, 33, 64, 70, 0, 130)
SIZES = (1, 2, 3, 4, 2, 5, 0)
MATRIX, STATISTIC, WEIGHT, SUM = "matrix", "statistic", "weight", "sum"
FORMS = {"x": MATRIX, "dy": MATRIX, "residual": MATRIX, "dresidual": MATRIX, "mean": STATISTIC, "rstd": STATISTIC,
         "weight": WEIGHT, "bias": WEIGHT, "dweight": SUM, "dbias": SUM}
SPECIAL = ("list", "text", "number", "none", "meta", "sparse")


@dataclasses.dataclass
class Tensor:
    """What is given for an operand."""

    shape: tuple
    dtype: str
    layout: str = "contiguous"
    special: str = None  # one of SPECIAL, in its place
    needs_gradient: bool = False
    at_the_left: bool = False
    before: int = 0  # elements in memory before the view's first one
    strides: tuple = ()

    def is_plain(self):
        return self.layout in ("contiguous", "offset") and self.special is None


@dataclasses.dataclass
class Call:
    kind: str  # operator, function, aten, arrays, handler
    norm: str
    backward: bool
    tensors: dict  # Tensors by name
    row: list  # normalized_shape
    eps: float
    offset: float
    mask: list
    into: bool = False  # weights' gradients are added to existing values
    outputs: tuple = ()  # results of array functions that are written to tensors of the caller
    wrong: list = dataclasses.field(default_factory=list)  # operands that were changed, so that the call may be invalid

    def __str__(self):
        tensors = ", ".join(
            f"{name}={t.special or t.dtype}{list(t.shape)}" + ("" if t.layout == "contiguous" else f"/{t.layout}{list(t.strides)}")
            + ("*" if t.needs_gradient else "") for name, t in self.tensors.items())
        what = f"{self.norm}{' backward' if self.backward else ''}{' into' if self.into else ''}"
        return (f"{self.kind} {what} row={self.row} {tensors} eps={self.eps} offset={self.offset} mask={self.mask} "
                f"wrong={self.wrong}")


def draw(random, kinds):
    """Draws a call of one of these kinds."""
    kind = random.choice(kinds)
    norm, backward = random.choice(("layernorm", "rmsnorm")), kind in ("aten", "handler") or random.random() < 0.5
    if kind == "aten":
        norm = "layernorm"
    if kind == "function":
        backward = False  # autograd computes the gradients of its results
    several = kind in ("operator", "aten") and random.random() < 0.3
    row = [random.choice(COLS)] if not several else [random.choice((1, 2, 3)), random.choice((1, 4, 5))]
    dimensions = {"handler": (1,)}.get(kind, (0, 1, 1, 2, 2, 3, 4, 5))
    outer = [random.choice(SIZES) for _ in range(random.choice(dimensions))]
    call = Call(kind, norm, backward, {}, row, random.choice((0.1, 0.1, 0.1, 1e-3)), random.choice((0.0, 0.0, 1.0)), [], False)
    main = random.choice(TYPES)
    if kind == "handler":
        main = "float32"
    types = {name: main if kind == "handler" or main == "float64" or random.random() < 0.7
             else random.choice(TYPES[:3]) for name in FORMS}
    if kind == "aten":
        call.offset = 0.0
    _draw_tensors(call, random, outer, types)
    if kind == "function" and "residual" in call.tensors:  # the sum is rounded, and a small eps would magnify the error
        call.eps = 0.1
    for t in call.tensors.values():
        t.at_the_left = random.random() < 0.5
        t.needs_gradient = kind == "function" and random.random() < 0.5
        if kind != "handler" and random.random() < 0.4:
            t.layout = random.choice(LAYOUTS + (("flipped",) if kind == "arrays" and t.dtype != "bfloat16" else ()))
    if random.random() < 0.4:
        for _ in range(random.choice((1, 1, 2))):
            _spoil(call, random)
    if kind == "aten" and call.wrong:  # the call may go to torch's own kernel, which takes statistics to be contiguous
        for name in {"mean", "rstd"} & call.tensors.keys():
            call.tensors[name].layout = "contiguous"
    for t in call.tensors.values():
        t.before = random.randrange(1, 9) if t.layout == "offset" else 0
        t.strides = tuple(strides_of(t.layout, t.shape, random))
    return call


def _draw_tensors(call, random, outer, types):
    x = (*outer, *call.row)
    slices = random.choice((0, 0, 0, 1, len(outer))) if call.kind in ("operator", "function") else 0
    weight_shape = (*outer[: min(slices, len(outer))], *call.row)
    statistic = random.choice(((*outer, *(1 for _ in call.row)), tuple(outer)))
    if call.kind == "aten":
        statistic = (*outer, *(1 for _ in call.row))
    if call.kind == "handler":
        statistic = tuple(outer)
    shapes = {MATRIX: x, STATISTIC: statistic, WEIGHT: weight_shape, SUM: weight_shape}
    has = {"x"}
    has_weight = random.random() < 0.8
    if has_weight:
        has |= {"weight", "bias"} if random.random() < 0.7 else {"weight"}
    if call.backward:
        has |= {"dy"} | ({"mean", "rstd"} if call.kind in ("aten", "handler") or random.random() < 0.5 else set())
        if call.kind in ("operator", "arrays") and random.random() < 0.3:
            has.add("dresidual")
        if call.kind == "operator" and has_weight and random.random() < 0.3:
            call.into = True
            has |= {name for name in ("dweight", "dbias") if random.random() < 0.7}
        has -= {"bias"} if call.kind in ("arrays", "handler") else set()
    elif random.random() < 0.4:
        has.add("residual")
    if call.norm == "rmsnorm":
        has -= {"bias", "mean", "dbias"}
    call.mask = [random.random() < 0.8 for _ in range(3 if call.norm == "layernorm" else 2)]
    for name, form in FORMS.items():
        if name in has:
            call.tensors[name] = Tensor(shapes[form], types[name])
    if call.kind in ("arrays", "handler"):
        _draw_outputs(call, random, x, types)


def _draw_outputs(call, random, x, types):
    """Draws arrays that the caller passes for some of the results."""
    if call.backward:
        possible = ["dx"] + (["dgamma"] + (["dbeta"] if call.norm == "layernorm" else []) if "weight" in call.tensors else [])
    else:
        possible = ["y"] + (["h"] if "residual" in call.tensors else [])
    is_handler = call.kind == "handler"
    call.outputs = tuple(name for name in possible if is_handler or random.random() < 0.8) or (possible[0],)
    for name in call.outputs:
        if is_handler or random.random() < 0.6:
            call.tensors["out " + name] = Tensor(tuple(call.row) if name in ("dgamma", "dbeta") else x,
                                                 types["x"] if is_handler or types["x"] == "float64"
                                                 else random.choice(TYPES[:3]))


def _spoil(call, random):
    names = [name for name in call.tensors]
    if call.kind in ("operator", "aten"):
        names += ["normalized_shape", "output_mask"] if call.backward else ["normalized_shape"]
    name = random.choice(names)
    call.wrong.append(name)
    if name == "normalized_shape":
        call.row = list(_other_shape(call.row, random)) if random.random() < 0.8 else [2**40, 2**40]
    elif name == "output_mask":
        call.mask = [True] * random.choice((0, 1, 2, 3, 4))
    else:
        t = call.tensors[name]
        what = random.random()
        if what < 0.6 or call.kind == "handler":
            t.shape = tuple(_other_shape(t.shape, random))
        elif what < 0.75:
            t.dtype = random.choice(OTHER_TYPES)
        elif what < 0.85:
            t.dtype = "float64" if t.dtype != "float64" else "float32"
        else:
            t.special = random.choice(SPECIAL)


def _other_shape(shape, random):
    shape = list(shape)
    how = random.randrange(8)
    if how == 0 and shape:
        shape.pop(random.randrange(len(shape)))
    elif how == 1:
        shape.insert(random.randrange(len(shape) + 1), random.choice((1, 2, 3)))
    elif how in (2, 3) and shape:
        i = random.randrange(len(shape))
        shape[i] = max(shape[i] + random.choice((-1, 1)), 0)
    elif how == 4 and shape:
        i = random.randrange(len(shape))
        shape[i] = random.choice((shape[i] * 2, shape[i] // 2, shape[i] + 4000))
    elif how == 5:
        shape = [math.prod(shape)]
    elif how == 6:
        random.shuffle(shape)
    else:
        shape = []
    return shape if math.prod(shape) < 200_000 else [1]


def why_refused(call):
    """Returns why the documented rule refuses the call, or None. If the reason is a tuple, only this kind of call may
    be refused for it, and need not be."""
    tensors = call.tensors
    for name, t in tensors.items():
        if t.special == "none" and name not in ("x", "dy") and (call.kind != "aten" or name in ("weight", "bias")):
            continue
        if t.special is not None:
            return f"{name}: {t.special}"
        if t.dtype not in TYPES:
            return f"{name}: type"
    t = {name: each for name, each in tensors.items() if each.special is None}
    x = t["x"].shape
    count = len(call.row) if call.kind in ("operator", "aten") else 1
    row = list(x[len(x) - count:]) if 1 <= count <= len(x) else None
    if row is None or (call.kind in ("operator", "aten", "handler") and row != call.row):
        return "normalized_shape, x"
    if call.kind == "handler" and (len(x) != 2 or row == [0]):
        return "x, cols: dimensions"
    outer = list(x[: len(x) - count])
    if call.kind in ("operator", "aten") and call.backward and len(call.mask) != (3 if call.norm == "layernorm" else 2):
        return "output_mask"
    slices = {}
    for name, each in t.items():
        shape, form = list(each.shape), FORMS.get(name) or (WEIGHT if name[4:] in ("dgamma", "dbeta") else MATRIX)
        alike = call.kind == "aten" and name != "x"  # torch requires only the number of elements
        fits = {
            MATRIX: shape == list(x) or (alike and math.prod(shape) == math.prod(x)),
            STATISTIC: shape == outer or (shape == outer + [1] * count and call.kind != "handler") or (
                alike and math.prod(shape) == math.prod(outer)),
            WEIGHT: shape[len(shape) - count:] == row and shape[: len(shape) - count] == outer[: len(shape) - count],
            SUM: True,
        }[form]
        slices[name] = len(shape) - count if form == WEIGHT else 0
        if call.kind not in ("operator", "function") and slices[name]:
            return f"{name}: rows"
        if not fits or len(shape) < (count if form == WEIGHT else 0):
            return f"{name}: shape"
        if call.kind != "function" and (each.dtype == "float64") != (t["x"].dtype == "float64"):
            return f"{name}, x: f64"
    if call.kind == "operator" and slices.get("weight") and slices.get("bias") and slices["weight"] != slices["bias"]:
        return "weight, bias: rows"
    return _why_no_sum(t) or why_no_pair(call)


def _why_no_sum(t):
    for name, of in (("dweight", "weight"), ("dbias", "bias" if "bias" in t else "weight")):
        if name in t:
            if of not in t:
                return f"{name}: no weight"
            if math.prod(t[name].shape) != math.prod(t[of].shape):
                return f"{name}: elements"
    return None


def why_no_pair(call):
    t = {name: each for name, each in call.tensors.items() if each.special is None}
    if call.backward and call.norm == "layernorm" and ("mean" in t) != ("rstd" in t):
        return "mean, rstd: one"
    if "mean" in t and "rstd" in t and t["mean"].dtype != t["rstd"].dtype and call.kind != "handler":
        return "mean, rstd: types"
    if call.kind == "arrays" and "dgamma" in call.outputs and "weight" not in t:
        return "gamma, dgamma: none"
    if call.kind == "arrays" and "h" in call.outputs and "residual" not in t:
        return "h, residual: none"
    if call.kind == "arrays" and not call.backward and call.outputs == ("h",):
        return "h: alone"
    return None


def in_double(call, values, row_dimensions):
    """Returns outputs by name, the scale of their errors, and the scale of xhat's error if h is rounded. `values` has
    the old contents of tensors in double."""
    axes = tuple(range(-row_dimensions, 0))
    x, count = values["x"], values["x"].ndim - row_dimensions
    h = x + values["residual"] if "residual" in values else x
    weight, bias = (values[n].reshape(_per_row(values[n].shape, h.shape, row_dimensions)) if n in values else None
                    for n in ("weight", "bias"))
    with np.errstate(all="ignore"):
        mean = h.mean(axes, keepdims=True) if call.norm == "layernorm" else np.zeros_like(h[..., :1].sum(axes, keepdims=True))
        rstd = 1 / np.sqrt(((h - mean) ** 2).mean(axes, keepdims=True) + call.eps)
        if "rstd" in values:
            rstd = values["rstd"].reshape(rstd.shape)
            mean = values["mean"].reshape(mean.shape) if "mean" in values else mean
        xhat = (h - mean) * rstd
        scaled = 1.0 if weight is None else weight + call.offset
        biggest_h = [float(np.abs(t).max()) for t in (h, rstd) if t.size]
        found = {"y": xhat * scaled + (0 if bias is None else bias), "h": h, "mean": mean, "rstd": rstd}
        biggest = [float(np.abs(t).max()) for t in (h, rstd, xhat, np.asarray(scaled)) if t.size]
        if "dy" in values:
            dy = values["dy"]
            g = dy * scaled
            c1, c2 = (g * xhat).mean(axes, keepdims=True), g.mean(axes, keepdims=True)
            dx = rstd * (g - xhat * c1 - (c2 if call.norm == "layernorm" else 0))
            found["dx"] = dx + values.get("dresidual", values.get("dh", 0))
            of_bias = "bias" if "bias" in values else "weight"
            for name, terms, of in (("dweight", dy * xhat, "weight"), ("dbias", dy + 0 * xhat, of_bias)):
                kept = values[of].ndim - row_dimensions if of in values else 0
                found[name] = terms.sum(tuple(range(kept, count)))
            biggest += [float(np.abs(dy).max())] if dy.size else []
    return found, math.prod(1 + each for each in biggest), math.prod(1 + each for each in biggest_h)


def _per_row(shape, x, row_dimensions):
    kept = len(shape) - row_dimensions
    return (*shape[:kept], *(1 for _ in range(len(x) - row_dimensions - kept)), *shape[kept:])


def is_close(got, wanted, dtype, scale, rounded):
    """`rounded` is the largest number of roundings on the way to the result."""
    if got.shape != wanted.shape:
        return f"its shape is {got.shape} and not {wanted.shape}"
    if got.size == 0:
        return None
    largest = max(float(np.abs(wanted).max()), 1.0)
    bound = (STEP[dtype] + rounded) * largest + (1e-13 if dtype == "float64" else 1e-6) * scale
    error = np.abs(got - wanted).max()
    return None if error <= bound else f"{error:.3g} off; at most {bound:.3g}"
