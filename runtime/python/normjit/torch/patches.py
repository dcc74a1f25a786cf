# SPDX-License-Identifier: Apache-2.0
"""patch(model): normjit's backward pass for norms that are written in Python. A patched module gets a class of its
own, derived from its old one, and a mark. A copy of the module computes with the copy's parameters."""
import collections
import copyreg
import dataclasses
import functools
import inspect
import math
import threading
import types
import weakref

import torch

from normjit._library import InvalidArgument
from normjit.torch import functional, operators, probes, trials, verification
from normjit.torch.functional import ALL_TYPES, PLAIN
from normjit.torch.probes import Norm
from normjit.torch.recognition import MARK, ORIGINAL, check_model, class_of, is_patched, look_at, vectors

_classes = weakref.WeakKeyDictionary()  # weak references to the classes of patched modules, by the original class
_lock = threading.Lock()
_left = collections.Counter()  # calls of patched modules that were left to their own forward, by reason


@dataclasses.dataclass
class Patch:
    """The mark of a patched module."""

    norm: Norm
    name: str  # its name in the model
    forward: bool  # true if the forward pass is normjit's, too
    verify: bool
    left: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def __reduce__(self):  # makes a copy start like a new mark, as if it had never been called
        return Patch, (self.norm, self.name, self.forward, self.verify)


def patch(model, compiled=False, forward=False, strict=True, verify=False):
    """Gives the norms of a model normjit's backward pass, and returns the model; unpatch() undoes it. The forward
    pass and the parameters stay the same, bit for bit. It patches modules that compute what LayerNorm or RMSNorm
    do, with a plain or a zero-centred weight, and whose gradients are the norm's; found(model) lists them and
    says why others are not patched. torch.nn.LayerNorm, which enable() serves, is patched only with forward=True,
    or with compiled=True for torch.compile: then the graph's backward pass contains an operator of normjit
    instead of Inductor's code.

    forward=True  in eager mode the forward pass is also a kernel of normjit's, for inputs of the weight's type. It
                  passes over memory once where a module in Python does so many times. It rounds once, when y is
                  stored, so an element may differ from the module's by one step of its type.
    strict=False  returns a model without a norm that normjit knows unchanged
    verify=True   compares the gradients of the first eager backward pass of each norm with those of the module's own
                  code, for the same tensors. If rounding does not explain the difference, backward() raises
                  normjit.Error. It costs the time of the module's own passes, once.

    What an input's shape or type may change in a module's code is tried at the first call with such an input, once for
    all equal modules, with random values. Calls that are not the norm's are left to the module; report() counts them.

    Raises normjit.InvalidArgument unless given a torch.nn.Module and, with strict=True, if there is nothing to patch;
    normjit.Unavailable if nothing can be served."""
    check_model(model)
    operators.register()
    known = {}
    patched = 0
    for name, module in model.named_modules():
        if not vectors(module):
            continue
        what, norm = look_at(name, module, known)
        if norm is None:
            continue
        patched += 1
        if class_of(module) is not torch.nn.LayerNorm or compiled or forward:
            _mark(module, Patch(norm, name, forward, verify))
    if not patched and strict:
        raise InvalidArgument("the model has no norm that normjit knows; found(model) says what each was taken for")
    return model


def unpatch(model):
    """Undoes patch(), and returns the model."""
    check_model(model)
    for module in model.modules():
        vars(module).pop(MARK, None)
        if ORIGINAL in vars(type(module)):  # otherwise another class is derived from the patched one
            module.__class__ = class_of(module)
    return model


def calls_left(module=None):
    """Returns how many calls the patched modules, or one of them, left to their own forward.

    The result is a collections.Counter by reason."""
    mark = None if module is None else vars(module).get(MARK)
    with _lock:
        return collections.Counter(_left if module is None else mark.left if mark is not None else ())


def _mark(module, mark):
    vars(module)[MARK] = mark
    if not hasattr(type(module), ORIGINAL):
        module.__class__ = _patched_class(type(module))


def _patched_class(original):
    with _lock:
        made = _classes.get(original, lambda: None)()
        if made is None:
            names = {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
            made = types.new_class(original.__name__, (_Patched, original), {},
                                   lambda body: body.update(names, **{ORIGINAL: original}))
            _classes[original] = weakref.ref(made)
        return made


def _rebuilt(original, *arguments):
    """Returns a patched module without its attributes, for copy and pickle."""
    kind = _patched_class(original)
    return kind.__new__(kind, *arguments)


class _Patched:
    """The first base of a patched module's class."""

    def __init_subclass__(cls, **named):
        pass  # hides this class from a register of classes that the module's own class may keep

    def __reduce_ex__(self, protocol):
        made = super().__reduce_ex__(protocol)
        if made[0] is not copyreg.__newobj__ or ORIGINAL not in vars(made[1][0]):
            return made  # made by the module's own class, or derived from the patched one
        return (_rebuilt, (class_of(self), *made[1][1:]), *made[2:])

    def forward(self, *arguments, **named):
        mark = getattr(self, MARK, None)
        if mark is None:
            return super().forward(*arguments, **named)
        x = arguments[0] if len(arguments) == 1 and not named else _only_argument(class_of(self), arguments, named)
        weight, bias = _parameter(self, "weight"), _parameter(self, "bias")
        reason = "other arguments than x were given" if x is None else _why_own(self, mark, x, weight, bias)
        if reason is None:
            return _by_normjit(self, mark, x, weight, bias, super().forward)
        if reason and not torch.compiler.is_compiling():
            _count(mark, reason)
        return super().forward(*arguments, **named)


def _parameter(module, name):
    """Returns getattr(module, name, None), which takes microseconds if there is none."""
    if torch.compiler.is_compiling():
        return getattr(module, name, None)
    for place in (module._parameters, vars(module)):  # DataParallel's replicas keep parameters in vars()
        if name in place:
            return place[name]
    return getattr(module, name) if hasattr(type(module), name) else None


def _only_argument(kind, arguments, named):
    """Returns the x of a call that passes it by name, or with the default values of all other parameters; None for
    other calls."""
    defaults = None if torch.compiler.is_compiling() else _parameters_of_forward(kind)
    if defaults is None or len(arguments) > len(defaults):
        return None
    given = {**dict(zip(defaults, arguments)), **named}
    if len(given) < len(arguments) + len(named):
        return None  # one argument is given twice
    x = given.pop(next(iter(defaults)), None)
    return x if all(name in defaults and defaults[name] is value for name, value in given.items()) else None


@functools.lru_cache(maxsize=256)
def _parameters_of_forward(kind):
    """Returns default values by parameter name, or None for a forward() with other kinds of parameters."""
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    if not parameters or any(each.kind is not each.POSITIONAL_OR_KEYWORD for each in parameters):
        return None
    return {each.name: each.default for each in parameters}


def _count(mark, reason):
    with _lock:
        mark.left[reason] += 1
        _left[reason] += 1


def _why_own(module, mark, x, weight, bias):
    """Returns why a call is left to the module: "" if there will be no gradient, None if normjit serves it."""
    if not isinstance(x, torch.Tensor):
        return f"x is {type(x).__name__}"
    if weight is None:
        return "the module has no weight any more"
    if not torch.compiler.is_compiling() and functional.is_looked_into():
        return ""
    has_gradient = torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))
    if not has_gradient and not mark.forward:
        return ""
    if x.is_nested or x.layout != torch.strided:
        return "x is nested or sparse"
    if weight.dim() != 1 or x.dim() == 0 or x.shape[-1] != weight.shape[0] or (
            bias is not None and bias.shape != weight.shape):
        return f"x and weight are of {list(x.shape)} and {list(weight.shape)}; must be [.., N] and [N]"
    if x.dtype not in ALL_TYPES or weight.dtype not in ALL_TYPES or (bias is not None and bias.dtype not in ALL_TYPES):
        return f"x and weight are of {x.dtype} and {weight.dtype}"
    if not operators.serves(x.device.type):
        return f"x is on {x.device}"
    return _why_another(module, mark, x, weight, bias, has_gradient)


def _why_another(module, mark, x, weight, bias, has_gradient):
    """Returns why a module may not compute the norm that it was recognised as, for an x of [.., N]; "" and None as
    in _why_own()."""
    norm = mark.norm
    changed = _changed(module, norm)
    if changed is not None:
        return f"its attribute {changed} is not what it was when patch() was called"
    eps = getattr(module, norm.eps_name)
    if eps is not None and not (isinstance(eps, float) and 0 <= eps < math.inf):
        return f"its eps is {eps!r}"
    if torch.compiler.is_compiling() or type(x) not in PLAIN or _is_capturing(x):
        return None if x.dim() in norm.ranks else f"x has {x.dim()} dimensions, with which it was not tried"
    if has_gradient and x.is_inference():
        return "x was made in inference mode; torch refuses to save it"
    key = (x.shape, x.dtype, x.device.type, x.requires_grad, eps, module.training, weight.dtype,
           None if bias is None else bias.dtype)
    reason = norm.checked.get(key, trials.UNKNOWN)
    return trials.check(module, class_of(module), norm, x, key) if reason is trials.UNKNOWN else reason


def _changed(module, norm):
    """Returns the name of an attribute that the module's code reads and that has changed since it was recognised, or
    None."""
    for name, value in norm.constants:
        now = getattr(module, name, probes)
        if now is not value and (type(now) is not type(value) or now != value):
            return name
    if torch.compiler.is_compiling():
        return None
    kind, attributes = class_of(module), vars(module)
    for name, function in norm.functions:
        now = attributes[name] if name in attributes and name != "forward" else getattr(kind, name, None)
        if now is not function:
            return name
    return None


def _is_capturing(x):
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _by_normjit(module, mark, x, weight, bias, own):
    by_kernel = mark.forward and weight.dtype == x.dtype and (bias is None or bias.dtype == x.dtype)
    if not by_kernel and not torch.is_grad_enabled():
        return own(x)
    eps = probes.eps_of(getattr(module, mark.norm.eps_name), x.dtype)
    norm = mark.norm.norm, eps, mark.norm.weight_offset, None if by_kernel else own
    y = functional.norm_of(x, None, weight, bias, *norm)
    if mark.verify and y.requires_grad and not torch.compiler.is_compiling():
        verification.at_backward(mark, module, class_of(module), x, y, norm)
    return y
