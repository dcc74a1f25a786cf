# SPDX-License-Identifier: Apache-2.0
"""Decides whether a module computes a norm, by comparing its outputs and gradients, for inputs of many kinds, with the
definition in double precision. It does not call the module itself but a twin, which has the module's class and
attributes and random parameters, in a separate thread, where no mode, autocast, hook on saved tensors or default
device is in force."""
import contextlib
import dataclasses
import enum
import math
import threading
import types
from typing import Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from normjit.torch import gated, log, override
from normjit.torch.functional import default_eps

OVERRIDDEN = {torch.ops.aten.native_layer_norm_backward.default: "torch_layer_norm_backward",
              torch.ops.aten._fused_rms_norm_backward.default: "torch_rms_norm_backward"}
NAMES = "weight", "bias"  # the usual names of a norm's parameters
CHUNK_ELEMENTS = 1 << 20
NO_MEMORY = (MemoryError, torch.OutOfMemoryError)
CONSTANTS = (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device, torch.layout)
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
MODULES_OWN = frozenset(vars(torch.nn.Module()))


class Refused(Exception):
    """Raised for a module that is not a norm, or not certainly one, with the reason."""


class Raised(Refused):
    """Raised if the module raised, which is allowed for inputs that it does not accept."""


@dataclasses.dataclass(frozen=True)
class Norm:
    """What a module computes, and what that conclusion depends on."""

    norm: str  # "layernorm", "rmsnorm", or one of gated.NAMES
    eps_name: Optional[str]  # the attribute that holds eps, which is read at each call; None if the code has the number
    eps: Optional[float]
    weight_offset: float
    constants: tuple = ()  # (name, value) of the other attributes that it reads
    functions: tuple = dataclasses.field(default=(), compare=False)  # (name, function) of the methods that it calls
    ranks: frozenset = frozenset()  # numbers of dimensions of x that were tried and can be served
    groups: int = 1  # groups of columns that are normalised separately
    variables: tuple = ()  # (module, name, value) of the global variables that it reads
    names: tuple = NAMES  # the names of its weight and its bias; the second may be of none
    checked: dict = dataclasses.field(default_factory=dict, compare=False, repr=False)  # results of trials.check()

    def eps_in(self, module):
        """Returns the eps of a module that computes this norm."""
        return self.eps if self.eps_name is None else getattr(module, self.eps_name)

    def __reduce__(self):  # pickle finds no name for the functions in `functions`
        return Norm, (self.norm, self.eps_name, self.eps, self.weight_offset, self.constants, (), self.ranks,
                      self.groups, self.variables, self.names)

    def __deepcopy__(self, memo):
        return self


def is_constant(value):
    return isinstance(value, CONSTANTS) or (isinstance(value, tuple) and all(map(is_constant, value)))


def is_other(now, value):
    """True if a constant is not what it was."""
    return now is not value and (type(now) is not type(value) or now != value)


def eps_of(eps, dtype):
    return default_eps(dtype) if eps is None else eps


class _TorchsOwn(TorchDispatchMode):
    """Uses torch's own kernels, even if enable() has given its operators normjit's."""

    def __torch_dispatch__(self, operator, kinds, arguments=(), named=None):
        own = OVERRIDDEN.get(operator)
        if own is None:
            return operator(*arguments, **(named or {}))
        with log.silent():
            return getattr(torch.ops.normjit, own)(*arguments, **(named or {}))


def alone(function, *arguments):
    """Runs a function in a separate thread, where torch's thread-local state is fresh. Returns its result, or raises
    its exception."""
    if torch.__version__ < (2, 15):
        # Without a GPU, it uses a device guard in the memory of the first thread that traces, even after its end. With
        # this guard autograd starts a thread, and then refuses to work in a child of fork().
        getattr(torch._C, "_ensureCUDADeviceGuardSet", lambda: None)()
    done = []

    def run():
        try:
            with _TorchsOwn() if override.is_enabled() else contextlib.nullcontext():
                done.append((function(*arguments), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=run, name="normjit probe")
    thread.start()
    thread.join()
    result, error = done[0]
    if error is not None:
        raise error
    return result


class _Recorder:
    """The first base of a twin's class. Records the attributes that the module's code reads. Refuses attributes whose
    content may change unnoticed, and any assignment."""

    def __init_subclass__(cls, **named):
        pass  # hides this class from a register of classes that the module's own class may keep

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        return value if name.startswith("__") and name != "__dict__" else _read(self, name, value)

    def __getattr__(self, name):
        parameters = object.__getattribute__(self, "_parameters")
        if name in parameters:
            return parameters[name]
        if name in object.__getattribute__(self, "_buffers"):
            raise _refusal(self, f"it reads its buffer {name}, which may change")
        return super().__getattr__(name)


    def __setattr__(self, name, value):
        raise _refusal(self, f"it sets its attribute {name} when it is called")

    __delattr__ = lambda self, name: self.__setattr__(name, None)  # noqa: E731


def attributes_of(twin):
    """Returns a twin's __dict__ without recording the access."""
    return object.__getattribute__(twin, "__dict__")


def _read(twin, name, value):
    """Returns the value of a twin's attribute, and records it."""
    kept = attributes_of(twin)["_normjit_read"]
    if name == "training" or name in kept:
        return value
    if isinstance(value, types.MethodType) and value.__self__ in (twin, type(twin)):
        kept[name] = value.__func__
    elif is_constant(value) or isinstance(value, FUNCTIONS):
        kept[name] = value
    elif name == "__dict__":
        raise _refusal(twin, "it looks through its attributes")
    else:
        raise _refusal(twin, f"it reads its attribute {name}, a {type(value).__name__}, whose content may change")
    return value


def _refusal(twin, reason):
    attributes_of(twin).setdefault("_normjit_refused", reason)  # in case the module itself catches the exception
    return Refused(reason)


def twin_of(module, kind, dtypes, shape, device, generator):
    """Returns a module of the class `kind` with a module's attributes, without hooks, and with random parameters of
    this shape and of the types that `dtypes` gives by name. If a type is None, the parameter is None."""
    twin = object.__new__(types.new_class(kind.__name__, (_Recorder, kind)))
    attributes = attributes_of(twin)
    attributes.update(vars(torch.nn.Module()))
    others = {*MODULES_OWN, *dtypes, "forward"}
    attributes.update({name: value for name, value in vars(module).items() if name not in others})
    attributes.update(_normjit_read={}, _buffers=dict(module._buffers))
    for name, dtype in dtypes.items():
        data = None if dtype is None else torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
        attributes["_parameters"][name] = None if data is None else torch.nn.Parameter(data.to(dtype))
    return twin


def possible_names(module):
    """Returns pairs of names that a module may have for its weight and its bias. A parameter called weight is one;
    without it, each parameter may be."""
    registered = module._parameters
    weights = ["weight"] if "weight" in registered else [name for name, p in registered.items() if p is not None]
    return [(weight, next((name for name in registered if name != weight), "bias")) for weight in weights]


def types_of(module, names):
    """Returns the types of a norm's parameters by name, as twin_of() takes them."""
    return {name: None if t is None else t.dtype for name, t in parameters_or_none(module, names).items()}


def parameters_or_none(module, names):
    """Returns a module's weight and bias by name, but only tensors and None, because `bias` may also be a setting."""
    found = {name: getattr(module, name) for name in names if hasattr(module, name)}
    return {name: t for name, t in found.items() if t is None or isinstance(t, torch.Tensor)}


def lacks_bias(norm, bias):
    """Returns why normjit does not serve a norm with this bias, which is None if there is none; None if it does."""
    if bias is None or norm.norm == "layernorm":
        return None
    return f"computes {norm.norm} and adds a bias, which normjit's {norm.norm} does not"


def parameters_of(twin):
    return attributes_of(twin)["_parameters"]


def read_by(twin):
    """Returns the attributes that a twin's code has read, as {name: value}, and the functions of its methods."""
    return attributes_of(twin)["_normjit_read"]


def output(twin, *inputs):
    """Returns a twin's output for x, or x and a gate. Raises Refused if it cannot be a norm's."""
    y = _tried(twin.forward, *inputs)
    if not isinstance(y, torch.Tensor) or y.shape != inputs[0].shape:
        raise Refused(unknown(len(inputs) > 1))
    return y


def unknown(has_gate):
    return "computes no norm with a gate that normjit knows" if has_gate else "computes neither LayerNorm nor RMSNorm"


def gradients(twin, inputs, dy, weight, bias):
    """Returns y, and the gradients of the inputs, weight and bias; none for a bias that does not exist."""
    leaves = [*inputs, *(t for t in (weight, bias) if t is not None)]
    with torch.enable_grad():
        y = output(twin, *inputs)
    if not y.requires_grad:
        raise Refused("its output has no gradient")
    wanted = [t for t in leaves if t.requires_grad]
    got = iter(_tried(torch.autograd.grad, y, wanted, dy.to(y.dtype), allow_unused=True))
    return y.detach(), *(next(got) if t.requires_grad else None for t in leaves)


def _tried(function, *arguments, **named):
    """Calls the module's code. Its exceptions become Raised, except Refused and NO_MEMORY."""
    try:
        return function(*arguments, **named)
    except (Refused, *NO_MEMORY):
        raise
    except Exception as error:
        raise Raised(f"{type(error).__name__}: {error}") from error


def definition(norm, inputs, dy, weight, bias):
    """Returns, in double, for a Norm and rows of [R,N]: y; the gradients of the inputs, weight and bias; and, for each
    input, the size of the terms that are subtracted in its gradient."""
    x, *gates = (t.double() for t in inputs)
    dy, weight = dy.double(), weight.double() + norm.weight_offset
    eps = eps_of(norm.eps, inputs[0].dtype)
    if not gates:
        y, dx, dweight, size = _plain(norm, x, dy, weight, eps)
        return y if bias is None else y + bias.double(), [dx], [dweight, None if bias is None else dy.sum(0)], [size]
    order, function = gated.NAMES[norm.norm]
    sigmoid = torch.sigmoid(gates[0])
    factor, slope = sigmoid, sigmoid * (1 - sigmoid)
    if function == "silu":
        factor, slope = gates[0] * sigmoid, sigmoid * (1 + gates[0] * (1 - sigmoid))
    if order == "gated_rmsnorm":
        y, dx, dweight, size = _plain(norm, x, dy * factor, weight, eps)
        return y * factor, [dx, dy * y * slope], [dweight], [size, float((dy * y).abs().max())]
    y, dh, dweight, size = _plain(norm, x * factor, dy, weight, eps)
    return y, [dh * factor, dh * x * slope], [dweight], [size * float(each.abs().max()) for each in (factor, x)]


def _plain(norm, x, dy, weight, eps):
    """Returns y, the gradients of x and weight, and the size of terms, of a norm without a gate, in groups of columns."""
    shape = x.shape
    x, dy, weight = (t.unflatten(-1, (norm.groups, -1)) for t in (x, dy, weight))
    centred = x - x.mean(-1, keepdim=True) if norm.norm == "layernorm" else x
    rstd = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    xhat = centred * rstd
    g = dy * weight
    dx = g - xhat * (g * xhat).mean(-1, keepdim=True)
    dx = rstd * (dx - g.mean(-1, keepdim=True) if norm.norm == "layernorm" else dx)
    size = float((rstd * g).abs().max())
    return (xhat * weight).reshape(shape), dx.reshape(shape), (dy * xhat).sum(0).flatten(), size


def off(got, wanted, size=0.0):
    """Returns the largest difference of two tensors, relative to the largest element of the second, or to `size` if
    that is larger."""
    if got is None or got.shape != wanted.shape:
        return math.inf
    if wanted.numel() == 0:
        return 0.0
    error = float((got.double() - wanted).abs().max())
    largest = max(size, float(wanted.abs().max()))
    if error == 0.0:
        return 0.0
    return error / largest if largest > 0 and not math.isnan(error) else math.inf


def compare(got, inputs, dy, weight, bias, norm, tolerance, sum_tolerance):
    """Raises Refused if outputs and gradients are not the norm's; `got` is what gradients() returned."""
    cols, count = dy.shape[-1], len(inputs)
    in_rows = lambda tensors: [None if t is None else t.detach().reshape(-1, cols) for t in tensors]  # noqa: E731
    rows, (dy, y), found, sums = in_rows(inputs), in_rows((dy, got[0])), in_rows(got[1 : 1 + count]), got[1 + count :]
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    totals = [torch.zeros(cols, dtype=torch.float64, device=dy.device) for _ in sums]
    step = max(1, CHUNK_ELEMENTS // cols)
    for begin in range(0, dy.shape[0], step):
        part = slice(begin, begin + step)
        wanted_y, wanted, wanted_sums, sizes = definition(norm, [t[part] for t in rows], dy[part], weight, bias)
        if off(y[part], wanted_y) > tolerance:
            raise Refused(unknown(count > 1))
        for name, like, each, right, size in zip(("x", "its gate"), inputs, found, wanted, sizes):
            if like.requires_grad and off(None if each is None else each[part], right, size) > tolerance:
                raise Refused(f"computes {norm.norm}, but its gradient of {name} is another")
        totals = [total + each for total, each in zip(totals, wanted_sums)]
    for name, each, total in zip(("weight", "bias"), sums, totals):
        if off(each, total) > sum_tolerance:
            raise Refused(f"computes {norm.norm}, but its gradient of {name} is another")
