# SPDX-License-Identifier: Apache-2.0
"""torch.ops.normjit.layer_norm_backward and rms_norm_backward do what aten's operators do. In addition, they add the
gradient of a residual stream to dx, recompute missing statistics from x, and support zero-centred weights. They have
no derivative of their own; normjit.torch.functional guards that. The operators whose names end in _into add the
gradients of weight and bias to the tensors dweight and dbias if these are given, and return none for them.
torch.ops.normjit.layer_norm and rms_norm are the norms themselves, of x + residual if there is a residual: they
return y, the sum or None and, on request, the statistics."""
import re

import torch

from normjit.torch import _kernels

SCHEMAS = {
    "layer_norm_backward": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? mean, Tensor? rstd, Tensor? weight, "
    "Tensor? bias, Tensor? dresidual, float eps, float weight_offset, bool[3] output_mask) "
    "-> (Tensor, Tensor, Tensor)",
    "rms_norm_backward": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? rstd, Tensor? weight, Tensor? dresidual, "
    "float eps, float weight_offset, bool[2] output_mask) -> (Tensor, Tensor)",
    "layer_norm": "(Tensor x, Tensor? residual, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps, "
    "float weight_offset, bool statistics) -> (Tensor, Tensor, Tensor, Tensor)",
    "rms_norm": "(Tensor x, Tensor? residual, SymInt[] normalized_shape, Tensor? weight, float eps, float weight_offset, "
    "bool statistics) -> (Tensor, Tensor, Tensor)",
    "layer_norm_backward_into": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? mean, Tensor? rstd, "
    "Tensor? weight, Tensor? bias, Tensor? dresidual, Tensor(a!)? dweight, Tensor(b!)? dbias, float eps, "
    "float weight_offset, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    "rms_norm_backward_into": "(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? rstd, Tensor? weight, "
    "Tensor? dresidual, Tensor(a!)? dweight, float eps, float weight_offset, bool[2] output_mask) -> (Tensor, Tensor)",
}
KERNELS = {"cpu": (3, 5, 7, 9, 11, 13), "cuda": (4, 6, 8, 10, 12, 14)}  # numbers for normjit_torch_kernel

served = set()  # the types of devices for which the operators have kernels; empty until register()
_library = None


def register():
    """Defines the operators, once per process, for the devices that normjit can serve here. Raises Unavailable if
    there is none."""
    global _library
    with _kernels.lock:
        if served:
            return
        reasons = {device: _kernels.why_not(device) for device in KERNELS}
        if all(reasons.values()):
            raise _kernels.Unavailable("; ".join(f"{device}: {reason}" for device, reason in reasons.items()))
        made = torch.library.Library("normjit", "FRAGMENT")
        for name, schema in SCHEMAS.items():
            made.define(name + schema, tags=[torch.Tag.pt2_compliant_tag])
        for name, fake in FAKES.items():
            torch.library.register_fake(f"normjit::{name}", fake, lib=made)
        able = [device for device in KERNELS if not reasons[device]]
        for device in able:
            for kernel in KERNELS[device]:
                _kernels.call("register", kernel, 1)
        _library = made
        served.update(able)


def serves(device):
    """True if the operators have kernels for a type of device. Defines the operators if needed, even in a process that
    received or loaded a patched model, and while torch traces the first call."""
    if not served:
        register()
    return device in served


# Does what torch.compiler.assume_constant_result() does, without importing torch._dynamo, which takes seconds.
serves._dynamo_marked_constant = True


# The shapes that operands must have, as in torch_operator.cpp.
MATRIX, STATISTIC, WEIGHT, SUM = "matrix", "statistic", "weight", "sum"
FORMS = {"dy": MATRIX, "residual": MATRIX, "mean": STATISTIC, "rstd": STATISTIC, "weight": WEIGHT, "bias": WEIGHT,
         "dresidual": MATRIX, "dweight": SUM, "dbias": SUM}
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def _fake(name):
    """Returns an operator without its kernel: it makes the same checks, with the same messages, and empty results."""
    arguments, results = SCHEMAS[name].split("->")
    names = re.findall(r"(\w+)[,)]", arguments)
    count = results.count("Tensor")

    def fake(*values, **named):
        given = {**dict(zip(names, values)), **named}
        for each in {"x", "dy"} & given.keys():  # torch does not check these if another tensor is on the meta device
            torch._check(isinstance(given[each], torch.Tensor), lambda: f"{each}: is None; must be a tensor")
        _Checks(given, count).all()
        return _gradients(given) if "dy" in given else _layer(given, with_mean=name == "layer_norm")

    return fake


def _gradients(given):
    x, weight = given["x"], given["weight"]
    beta_like = weight if given.get("bias") is None else given["bias"]
    likes = (x, weight if given.get("dweight") is None else None, beta_like if given.get("dbias") is None else None)
    return tuple(x.new_empty(like.shape, dtype=like.dtype) if wanted and like is not None else None
                 for wanted, like in zip(given["output_mask"], likes))


def _layer(given, with_mean):
    x, normalized = given["x"], len(given["normalized_shape"])
    shape = (*x.shape[: x.dim() - normalized], *(1 for _ in range(normalized)))
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    rstd, *mean = (x.new_empty(shape, dtype=wide) if given["statistics"] else None for _ in range(1 + with_mean))
    return (x.new_empty(x.shape), None if given["residual"] is None else x.new_empty(x.shape), *mean, rstd)


class _Checks:
    """Checks the arguments of a call, by their names."""

    def __init__(self, given, results):
        self.given, self.results = given, results
        self.x, self.row = given["x"], list(given["normalized_shape"])
        self.outer = list(self.x.shape[: max(self.x.dim() - len(self.row), 0)])
        self.slices = 0  # how many of the first dimensions of x have their own rows of weights

    def all(self):
        self.check_type("x", self.x)
        inner = self.x.shape[self.x.dim() - len(self.row):] if 1 <= len(self.row) <= self.x.dim() else []
        _check_equal(self.row or None, inner, lambda: f"normalized_shape: is {_text(self.row)}; must be the last dimensions of "
                                                      f"x, {_text(self.x.shape)}")
        mask = self.given.get("output_mask")
        torch._check(mask is None or len(mask) == self.results,
                     lambda: f"output_mask: has {len(mask)} elements; must have {self.results}")
        operands = {name: self.given[name] for name in FORMS if self.given.get(name) is not None}
        for name, t in operands.items():
            getattr(self, f"check_{FORMS[name]}")(name, t)
        for name, t in operands.items():
            self.check_type(name, t)
        for name, t in operands.items():
            torch._check(t.device == self.x.device, lambda: f"{name}: is not on the device of x")
        if "mean" in self.given:
            mean, rstd = self.given["mean"], self.given["rstd"]
            torch._check(rstd is None or mean is not None, lambda: "rstd: is given without mean")
            torch._check(mean is None or rstd is not None, lambda: "mean: is given without rstd")
            torch._check(mean is None or mean.dtype == rstd.dtype, lambda: "mean: its type is not that of rstd")

    def check_type(self, name, t):
        torch._check(t.dtype in TYPES, lambda: f"{name}: its type is none of float32, bfloat16, float16 and float64")
        wide = self.x.dtype == torch.float64
        problem = "is not float64, and x is" if wide else "is float64, and x is not"
        torch._check((t.dtype == torch.float64) == wide,
                     lambda: f"{name}: {problem}; float64 cannot be combined with other types")

    def check_shape(self, name, t, wanted, must):
        _check_equal(t.shape, wanted, lambda: f"{name}: its shape is {_text(t.shape)}; must be {must}")

    def check_matrix(self, name, t):
        self.check_shape(name, t, self.x.shape, f"that of x, {_text(self.x.shape)}")

    def check_statistic(self, name, t):
        padded = [*self.outer, *(1 for _ in self.row)]
        wanted = self.outer if t.dim() == len(self.outer) else padded
        self.check_shape(name, t, wanted, f"{_text(self.outer)} or {_text(padded)}")

    def check_weight(self, name, t):
        slices = t.dim() - len(self.row)
        wanted = [*self.outer[:slices], *self.row] if 0 <= slices <= len(self.outer) else None
        self.check_shape(name, t, wanted, f"{_text(self.row)}, or that with the first dimensions of x, "
                                          f"{_text(self.x.shape)}, before it")
        torch._check(not slices or self.slices in (0, slices),
                     lambda: f"{name}: has a row for each element of x's first {slices} dimensions, and weight of its first "
                             f"{self.slices}; must be the same")
        self.slices = max(self.slices, slices)

    def check_sum(self, name, t):
        like = self.given["weight"]
        if name == "dbias" and self.given["bias"] is not None:
            like = self.given["bias"]
        torch._check(like is not None, lambda: f"{name}: is given without a weight")
        torch._check(t.numel() == like.numel(), lambda: f"{name}: its shape is {_text(t.shape)}; must have as many elements as "
                                                        f"{_text(like.shape)}")
        torch._check(t.is_contiguous(), lambda: f"{name}: is not contiguous; must be, because a gradient is added to it")


def _check_equal(sizes, others, message):
    """Checks that sizes are equal. Torch checks sizes that a graph does not know yet when it knows them."""
    torch._check(sizes is not None and others is not None and len(sizes) == len(others), message)
    for size, other in zip(sizes, others):
        torch._check(size == other, message)


def _text(sizes):
    return f"[{', '.join(map(str, sizes))}]"


FAKES = {name: _fake(name) for name in SCHEMAS}
