# SPDX-License-Identifier: Apache-2.0
"""Runs a call of fuzz_calls.py on guarded memory, and says how it went."""
import contextlib

import fuzz_calls
import normjit.torch
import numpy as np
import torch
from guarded import Block
from normjit.torch import operators

ITEMS = {"bfloat16": np.int16, "complex64": np.complex64, "bool": np.bool_}
NAMES = {"arrays": {"weight": "gamma", "bias": "beta", "dweight": "dgamma", "dbias": "dbeta"},
         "aten": {"x": "input", "dy": "grad_out"}, "handler": {"weight": "gamma"}}
CLEAN = {"operator": (RuntimeError, TypeError), "aten": (RuntimeError, TypeError), "function": normjit.Error,
         "arrays": normjit.Error, "handler": RuntimeError}
LAYOUT_WORDS = ("stride", "contiguous", "overlap", "cols=0", "multiple", "written")
SMALLEST = ("bfloat16", "float16", "float32", "float64")


class Wrong(Exception):
    """Raised if the product did something wrong."""


def run(call, seed):
    """Returns the outcome in a word or two. Raises Wrong."""
    operators.register()
    given = Given(call, seed)
    try:
        return _judge(call, given)
    finally:
        given.free()


class Given:
    """The operands of a call, in guarded memory."""

    def __init__(self, call, seed):
        self.random = np.random.default_rng(seed)
        self.blocks, self.torch, self.values = {}, {}, {}
        for name, t in call.tensors.items():
            self.torch[name] = special(t.special) if t.special else self.make(name, t)
        for name, t in self.torch.items():
            if name in self.blocks and call.tensors[name].dtype in fuzz_calls.TYPES:
                self.values[name] = np.array(t.detach().double() if isinstance(t, torch.Tensor) else t, np.float64)
        for block in self.blocks.values():
            block.keep()

    def make(self, name, t):
        block = Block(t.shape, t.strides, ITEMS.get(t.dtype, getattr(np, t.dtype, None)), t.at_the_left, t.before)
        self.blocks[name] = block
        numbers = self.random.standard_normal(block.flat.size)
        numbers = np.abs(numbers) + 0.5 if name == "rstd" else numbers
        flat = torch.from_numpy(block.flat)
        flat = flat.view(torch.bfloat16) if t.dtype == "bfloat16" else flat
        flat.copy_(torch.from_numpy(numbers))
        if any(stride < 0 for stride in t.strides):
            return block.array
        made = flat.as_strided(t.shape, t.strides, block.offset) if flat.numel() else flat.reshape(t.shape)
        return made.requires_grad_(t.needs_gradient and made.dtype.is_floating_point)

    def array(self, name):
        """Returns a NumPy array, if NumPy has the type."""
        t = self.torch[name]
        return self.blocks[name].array if name in self.blocks and t.dtype != torch.bfloat16 else t

    def check_memory(self, accepted):
        for name, block in self.blocks.items():
            is_output = accepted and (name in ("dweight", "dbias") or name.startswith("out "))
            if block.was_changed(is_output):
                raise Wrong(f"{name}: what is none of the call's to write was written")

    def free(self):
        self.torch.clear()
        for block in self.blocks.values():
            block.free()


def special(what):
    return {"list": [1.0], "text": "text", "number": 1.0, "none": None, "meta": torch.ones(2, 3, device="meta"),
            "sparse": torch.ones(2, 3).to_sparse()}[what]


def _judge(call, given):
    reasons = [fuzz_calls.why_refused(call), fuzz_calls.why_no_pair(call), _why_not_contiguous(given)]
    reason = next((each for each in reasons if each is not None), None)
    try:
        results = RUNS[call.kind](call, given)
    except CLEAN[call.kind] as error:
        given.check_memory(accepted=False)
        return _refused(call, reason, [each for each in reasons if each is not None], error)
    except Wrong:
        raise
    except Exception as error:
        if call.kind == "aten" and any(t.special == "meta" for t in call.tensors.values()):
            return "torch's meta kernel"
        raise Wrong(f"raised {type(error).__name__}: {error}") from error
    if call.kind == "aten" and any(t.special == "meta" for t in call.tensors.values()):
        return "torch's meta kernel"
    if call.kind == "operator" and all(t.special in ("meta", "none") for t in call.tensors.values()):
        return "the fake kernel"
    if call.kind == "aten" and reason is not None and reason.rpartition(" ")[2] in ("type", "types", "f64"):
        return "torch's kernel takes these types"
    if reason is not None and not (call.kind == "arrays" and reason.rpartition(" ")[2] in ("types", "f64")):  # for
                                                                                                              # unread
                                                                                                              # tensors
        raise Wrong(f"accepted, and must be refused: {reason}")
    given.check_memory(accepted=True)
    _check_results(call, given, results)
    return "right" if reason is None else "right, beside an unread array of another type"


def _why_not_contiguous(given):
    for name in ("dweight", "dbias"):
        if name in given.blocks and not given.torch[name].is_contiguous():
            return f"{name}: contiguous"
    return None


def _refused(call, reason, reasons, error):
    message = str(error)
    x = call.tensors["x"]
    is_plain = (x.special or not x.shape or x.shape[-1] != 0) and all(t.layout == "contiguous" for t in call.tensors.values())
    if call.kind == "arrays" and not is_plain and any(word in message for word in LAYOUT_WORDS):
        return "refused: a layout that array functions do not take"
    if reason is None:
        if call.kind == "aten":
            return _refused_by_torch(call, message)
        raise Wrong(f"refused, and fits: {type(error).__name__}: {message}")
    names = NAMES.get(call.kind, {})
    suspects = set(call.wrong).union(*(each.partition(":")[0].split(", ") for each in reasons))
    suspects |= set(call.tensors) if "x" in call.wrong or "normalized_shape" in suspects else set()
    if call.kind == "aten" and "output_mask" in call.wrong and "fixed-size array" in message:
        return "refused: output_mask"
    suspects |= {"h"} if call.outputs == ("h",) else set()
    suspects |= {"cols"} if call.row == [0] else set()
    specials = {t.special for t in call.tensors.values()}
    if call.kind == "operator" and "There were no tensor arguments" in message:
        return "refused: none"
    named = any(names.get(n.removeprefix("out "), n.removeprefix("out ")) in message for n in suspects)
    if not named and not (specials & {"sparse", "meta"} and call.kind in ("operator", "aten")):
        raise Wrong(f"refused, but names none of {', '.join(sorted(suspects))}: {message}")
    return f"refused: {reason.rpartition(': ')[2]}"


def _refused_by_torch(call, message):
    """True for a call that only torch's own requirements refuse, such as types."""
    types = {t.dtype for t in call.tensors.values()}
    if len(types) > 1 and "nor could" in message:
        return "refused by both: types"
    raise Wrong(f"refused, and torch does not mind: {message}")


def _check_results(call, given, results):
    values = {**given.values, **{name: t for name, t in results.pop("values", {}).items()}}
    x = values["x"]
    values = {n: t.reshape(x.shape) if n in ("dy", "dh", "dresidual") else t for n, t in values.items()}
    wanted, scale, of_h = fuzz_calls.in_double(call, values, len(call.row) if call.kind in ("operator", "aten") else 1)
    types = [str(t.dtype).removeprefix("torch.") for t in given.torch.values() if isinstance(t, (torch.Tensor, np.ndarray))]
    narrowest = min((t for t in types if t in SMALLEST), key=SMALLEST.index)
    rounded = fuzz_calls.STEP[narrowest] * (of_h if "residual" in values else 1) if call.kind == "function" else 0.0
    for name, got in results.items():
        if got is None:
            continue
        if name.removeprefix("into ") not in wanted:
            raise Wrong(f"{name}: was made of nothing")
        right = wanted[name.removeprefix("into ")]
        if name.startswith("into "):
            right = right.reshape(got.shape) + values[name.removeprefix("into ")]
        dtype = str(got.dtype).removeprefix("torch.")
        dtype = "float32" if dtype == "float64" != narrowest else dtype  # the type of the sums
        numbers = got.detach().double().numpy() if isinstance(got, torch.Tensor) else np.asarray(got, np.float64)
        problem = fuzz_calls.is_close(numbers, right.reshape(numbers.shape) if numbers.size == right.size else right, dtype,
                                      scale, rounded)
        if problem:
            raise Wrong(f"{name}: {problem}")


def _operator(call, given):
    """Calls one of normjit's own operators, and checks that its fake kernel agrees."""
    name = ("layer_norm" if call.norm == "layernorm" else "rms_norm") + ("_backward" * call.backward) + ("_into" * call.into)
    numbers = {"normalized_shape": call.row, "eps": call.eps, "weight_offset": call.offset, "statistics": True,
               "output_mask": call.mask}
    operator = getattr(torch.ops.normjit, name).default
    names = [a.name for a in operator._schema.arguments]
    arguments = [numbers[n] if n in numbers else given.torch.get(n) for n in names]
    is_ordinary = not any(t.special for t in call.tensors.values())
    fake = _outcome(operator, [_on_meta(a) for a in arguments]) if is_ordinary and given.random.random() < 0.3 else None
    try:
        made = operator(*arguments)
    except RuntimeError as error:
        if fake is not None and fake != str(error).partition("\n")[0]:
            raise Wrong(f"the fake kernel says {fake!r}, the kernel {error}") from error
        raise
    shapes = [None if t is None else (tuple(t.shape), t.dtype) for t in made]
    if fake is not None and fake != shapes:
        raise Wrong(f"the fake kernel makes {fake}, the kernel {shapes}")
    if not call.backward:
        of = ("y", "h", "mean", "rstd") if call.norm == "layernorm" else ("y", "h", "rstd")
        found = dict(zip(of, made))
        return {n: t for n, t in found.items() if n not in ("mean", "rstd") or 0 not in call.row}
    found = dict(zip(("dx", "dweight", "dbias"), made))
    return {**found, **{f"into {n}": given.torch[n] for n in ("dweight", "dbias") if given.torch.get(n) is not None}}


def _on_meta(argument):
    """Returns a tensor of this shape and these strides without memory (on the meta device)."""
    if not isinstance(argument, torch.Tensor):
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype, device="meta")


def _outcome(operator, arguments):
    try:
        return [None if t is None else (tuple(t.shape), t.dtype) for t in operator(*arguments)]
    except RuntimeError as error:
        return str(error).partition("\n")[0]


def _aten(call, given):
    t = given.torch.get
    with normjit.torch.enabled():
        made = torch.ops.aten.native_layer_norm_backward(t("dy"), t("x"), call.row, t("mean"), t("rstd"), t("weight"), t("bias"),
                                                         call.mask)
    return dict(zip(("dx", "dweight", "dbias"), made))


def _function(call, given):
    t = given.torch.get
    named = {"eps": call.eps, "weight_offset": call.offset, "residual": t("residual")}
    if call.norm == "layernorm":
        y = normjit.torch.layer_norm(t("x"), t("weight"), t("bias"), **named)
    else:
        y = normjit.torch.rms_norm(t("x"), t("weight"), **named)
    y, h = y if isinstance(y, tuple) else (y, None)
    leaves = {n: each for n, each in given.torch.items() if isinstance(each, torch.Tensor) and each.requires_grad}
    if not leaves:
        return {"y": y, "h": h}
    of = [each for each in (y, h) if each is not None and each.requires_grad]
    seeds = [torch.from_numpy(given.random.standard_normal(each.shape)).to(each.dtype) for each in of]
    found = torch.autograd.grad(of, list(leaves.values()), seeds)
    gradients = dict(zip([{"x": "dx", "residual": "dx"}.get(n, f"d{n}") + " " * (n == "residual") for n in leaves], found))
    values = {"dy": seeds[0].double().numpy()} | ({"dh": seeds[1].double().numpy()} if len(seeds) > 1 else {})
    return {"y": y, "h": h, **{n: each for n, each in gradients.items() if not n.endswith(" ")}, "values": values}


def _arrays(call, given):
    norm = "layer_norm" if call.norm == "layernorm" else "rms_norm"
    named = {n: given.array(n) for n in given.torch}
    out = {n.removeprefix("out "): named.pop(n) for n in list(named) if n.startswith("out ")}
    named = {NAMES["arrays"].get(n, n): t for n, t in named.items()}
    function = getattr(normjit, norm + "_backward" * call.backward)
    made = function(**named, eps=call.eps, gamma_offset=call.offset, outputs=call.outputs, out=out)
    back = {value: key for key, value in NAMES["arrays"].items()}
    return {back.get(n, n): t for n, t in made._asdict().items()}


def _handler(call, given):
    """Calls the handler as XLA does."""
    import jax_handler_test as xla

    present = {n: given.blocks[n].array for n in call.tensors}
    gamma = "gamma=f32" if "weight" in present else "gamma=none"
    spec = f"{call.norm} cols={call.row[0]} {gamma} out={','.join(call.outputs)}" + (
        f" gamma_offset={call.offset}" if "weight" in present else "")
    played = xla.Xla()
    inputs = [present[n] for n in ("x", "dy", "weight", "mean", "rstd") if n in present]
    if xla.call(played, spec, inputs, [present[f"out {n}"] for n in call.outputs]):
        raise RuntimeError(played.errors[0][1])
    names = {"dx": "dx", "dgamma": "dweight", "dbeta": "dbias"}
    return {names[n]: present[f"out {n}"] for n in call.outputs}


RUNS = {"operator": _operator, "aten": _aten, "function": _function, "arrays": _arrays, "handler": _handler}


@contextlib.contextmanager
def quietly():
    """Ignores torch's warnings about read-only arrays and about itself."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
