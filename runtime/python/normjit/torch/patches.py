# SPDX-License-Identifier: Apache-2.0
"""patch(model): normjit's backward pass for norms that are written in Python. A patched module gets its own class,
derived from its old one, and a mark. A copy of the module computes with the copy's parameters."""
import collections
import contextlib
import copyreg
import dataclasses
import inspect
import math
import threading
import types
import weakref
from typing import TypeVar

import torch

from normjit._library import InvalidArgument, counted
from normjit.torch import functional, operators, probes, sources, tracing, trials, verification
from normjit.torch.functional import ALL_TYPES, PLAIN
from normjit.torch.gated import GatedNorm, gated_norm_of
from normjit.torch.probes import Norm
from normjit.torch.recognition import MARK, ORIGINAL, check_model, class_of, look_at, parameters_of_forward, vectors, why_left

Model = TypeVar("Model", bound=torch.nn.Module)
_classes = weakref.WeakKeyDictionary()  # weak references to the classes of patched modules, by the original class
_lock = threading.Lock()
_left = collections.Counter()  # calls of patched modules that were left to their own forward, by reason


@dataclasses.dataclass
class Patch:
    """The mark of a patched module."""

    norm: Norm  # what a call with x alone computes, or None
    gated: Norm  # what a call with x and a gate computes, or None
    name: str  # its name in the model
    forward: bool  # true if normjit also computes the forward pass
    verify: bool
    left: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def __reduce__(self):  # a copy then starts like a new mark, which was never called
        return Patch, (self.norm, self.gated, self.name, self.forward, self.verify)


def patch(model: Model, compiled: bool = False, forward: bool = False, strict: bool = True,
          verify: bool = False) -> Model:
    """Gives the norms of a model normjit's backward pass, and returns the model; unpatch() undoes it. The forward pass
    and the parameters stay the same, bit for bit. It patches modules that compute what LayerNorm or RMSNorm do, with a
    plain or a zero-centred weight, and whose gradients are the norm's. It also patches RMSNorms whose input or output
    is multiplied by a function of a gate, with or without groups of columns. found(model) lists these modules and says
    why others are not patched. torch.nn.LayerNorm, which enable() serves, is patched only with forward=True, or with
    compiled=True for torch.compile: the graph's backward pass then contains an operator of normjit instead of
    Inductor's code.

    forward=True  in eager mode the forward pass is also a kernel of normjit's, for inputs of the weight's type. It
                  passes over memory once where a module in Python does so many times. It rounds once, when y is
                  stored, so an element may differ from the module's by one step of its type.
    strict=False  a model without a norm that normjit knows is not an error; it is returned unchanged
    verify=True   compares the gradients of the first eager backward pass of each norm with those of the module's own
                  code, for the same tensors. If rounding does not explain the difference, backward() raises
                  normjit.Error. It costs the time of the module's own passes, once.

    A second call gives all norms of the model its options, also those that were parametrized or sharded since.

    A module's code may depend on the shape and type of its input. So it is tried with random values at the first call
    with a new shape or type, once for all equal modules. Calls that do not compute the norm are left to the module;
    report() counts them.

    Raises normjit.InvalidArgument unless given a torch.nn.Module and, with strict=True, if there is nothing to patch;
    normjit.Unavailable if nothing can be served."""
    check_model(model)
    operators.register()
    known = {}
    patched = 0
    for name, module in model.named_modules():
        old = vars(module).get(MARK)
        if not vectors(module) and old is None:
            continue
        _, norm, gated = look_at(name, module, known)
        if norm is None and gated is None:
            if old is None or why_left(module) is None:
                continue
            norm, gated = old.norm, old.gated  # it was parametrized or sharded since, and cannot be tried again
        patched += 1
        if class_of(module) is not torch.nn.LayerNorm or compiled or forward:
            _mark(module, Patch(norm, gated, name, forward, verify))
        else:
            _unmark(module)
    if not patched and strict:
        raise InvalidArgument("the model has no norm that normjit knows; found(model) says what each was taken for")
    return model


def unpatch(model: Model) -> Model:
    """Undoes patch(), and returns the model."""
    check_model(model)
    for module in model.modules():
        _unmark(module)
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


def _unmark(module):
    vars(module).pop(MARK, None)
    if ORIGINAL in vars(type(module)):  # otherwise another class is derived from the patched one
        module.__class__ = class_of(module)


def _patched_class(original):
    with _lock:
        made = _classes.get(original, lambda: None)()
        if made is None:
            names = {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
            made = types.new_class(original.__name__, (_Patched, original), {},
                                   lambda body: body.update(names, forward=_forward_like(original.forward), **{ORIGINAL: original}))
            _classes[original] = weakref.ref(made)
        return made


def _forward_like(own):
    """Returns _Patched.forward with the signature of a module's own, in which torch.export and torch.jit.trace look for
    the names of arguments, and with its own code object, because Dynamo limits the graphs of each."""
    by = _Patched.forward
    made = types.FunctionType(by.__code__.replace(), by.__globals__, by.__name__, by.__defaults__, by.__closure__)
    with contextlib.suppress(TypeError, ValueError):  # a callable object may have none
        made.__signature__ = inspect.signature(own)
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
            return made  # the module's own class made the instance, or a class derived from the patched one did
        return (_rebuilt, (class_of(self), *made[1][1:]), *made[2:])

    def __prepare_scriptable__(self):
        raise InvalidArgument("torch.jit.script: reads the source of forward(), which patch() replaced; call unpatch(model) "
                              "first, or use torch.jit.trace or torch.export")

    def forward(self, *arguments, **named):
        if not isinstance(self, _Patched):  # it was called through a bound method that somebody kept after unpatch()
            return type(self).forward(self, *arguments, **named)
        mark = getattr(self, MARK, None)
        if mark is None:
            return super().forward(*arguments, **named)
        inputs = arguments if len(arguments) == 1 and not named else _inputs(class_of(self), arguments, named)
        norm = None if inputs is None else mark.norm if len(inputs) == 1 else mark.gated
        names = probes.NAMES if norm is None else norm.names
        weight, bias = _parameter(self, names[0]), _parameter(self, names[1])
        reason = _why_no_norm(inputs) if norm is None else _why_own(self, mark, norm, inputs, weight, bias)
        if reason is None:
            # Dynamo of torch 2.10 and 2.11 accepts no method of super() as an argument of an autograd.Function.
            return _by_normjit(self, mark, norm, inputs, weight, bias, lambda *given: super(_Patched, self).forward(*given))
        if reason and not torch.compiler.is_compiling():
            _count(mark, reason)
        return super().forward(*arguments, **named)


def _parameter(module, name):
    """Returns a module's parameter, or None if it has none. getattr() would take microseconds in that case."""
    if torch.compiler.is_compiling():
        found = getattr(module, name, None)
    else:
        places = (module._parameters, vars(module))  # DataParallel's replicas keep parameters in vars()
        found = next((place[name] for place in places if name in place), None)
        if found is None and hasattr(type(module), name):
            found = getattr(module, name)
    return found if isinstance(found, torch.Tensor) else None


def _inputs(kind, arguments, named):
    """Returns (x,) or (x, gate) for a call that passes them by name, or passes all other parameters with their default
    values; None for other calls."""
    if len(arguments) == 2 and not named and arguments[1] is not None:
        return arguments
    defaults = None if torch.compiler.is_compiling() else parameters_of_forward(kind)
    if defaults is None or len(arguments) > len(defaults):
        return None
    given = {**dict(zip(defaults, arguments)), **named}
    if len(given) < len(arguments) + len(named):
        return None  # one argument is given twice
    inputs = [given.pop(name) for name in list(defaults)[:1] if name in given]
    gates = [given.pop(name) for name in list(defaults)[1:2] if given.get(name, defaults[name]) is not defaults[name]]
    if not inputs or any(name not in defaults or defaults[name] is not value for name, value in given.items()):
        return None
    return (*inputs, *gates)


def _count(mark, reason):
    with _lock:
        mark.left[reason] += 1
        _left[reason] += 1


def _why_no_norm(inputs):
    """Returns why a call is left to a module that is known to compute no norm from such arguments."""
    alone = inputs is not None and len(inputs) == 1
    return "x was given without a gate" if alone else "other arguments than x were given"


def _why_own(module, mark, norm, inputs, weight, bias):
    """Returns why a call is left to the module; "" if there will be no gradient, None if normjit serves the call."""
    x = inputs[0]
    for name, tensor in zip(("x", "its gate"), inputs):
        if not isinstance(tensor, torch.Tensor):
            return f"{name} is {type(tensor).__name__}"
    if weight is None:
        return "the module has no weight any more"
    if tracing.is_looked_into():
        return ""
    given = [t for t in (*inputs, weight, bias) if t is not None]
    has_gradient = torch.is_grad_enabled() and any([t.requires_grad for t in given])
    if not has_gradient and not mark.forward:
        return ""
    if any([t.is_nested or t.layout != torch.strided for t in inputs]):
        return "x is nested or sparse"
    if weight.dim() != 1 or x.dim() == 0 or x.shape[-1] != weight.shape[0] or (
            bias is not None and bias.shape != weight.shape):
        return f"x and weight are of {list(x.shape)} and {list(weight.shape)}; must be [.., N] and [N]"
    if (wrong := probes.lacks_bias(norm, bias)) is not None:
        return f"the module {wrong}"
    if any([t.dtype not in ALL_TYPES for t in given]):
        return f"x and weight are of {x.dtype} and {weight.dtype}"
    if not operators.serves(x.device.type):
        return f"x is on {x.device}"
    return (_why_no_gate(*inputs) if len(inputs) > 1 else None) or _why_another(module, norm, inputs, weight, bias, has_gradient)


def _why_no_gate(x, gate):
    if gate.shape != x.shape or gate.device != x.device:
        return f"x and its gate are of {list(x.shape)} and {list(gate.shape)}, on {x.device} and {gate.device}; must be alike"
    if not torch.compiler.is_compiling() and any(type(t) not in PLAIN for t in (x, gate)):
        return f"x and its gate are {type(x).__name__} and {type(gate).__name__}; with a gate they must be tensors"
    return None


def _why_another(module, norm, inputs, weight, bias, has_gradient):
    """Returns why a module may not compute the norm that it was recognised as, for an x of [.., N]; "" and None are as
    in _why_own()."""
    x = inputs[0]
    changed = _changed(module, norm)
    if changed is not None:
        return f"{changed} is not what it was when patch() was called"
    eps = norm.eps_in(module)
    if eps is not None and not (isinstance(eps, float) and 0 <= eps < math.inf):
        return f"its eps is {eps!r}"
    if torch.compiler.is_compiling() or type(x) not in PLAIN or _is_capturing(x):
        return None if x.dim() in norm.ranks else f"x has {counted(x.dim(), 'dimension')}, with which it was not tried"
    if has_gradient and any([t.is_inference() for t in inputs]):
        return "x was made in inference mode; torch refuses to save it"
    key = (x.shape, *((t.dtype, t.requires_grad) for t in inputs), x.device.type, eps, module.training, weight.dtype,
           None if bias is None else bias.dtype)
    reason = norm.checked.get(key, trials.UNKNOWN)
    return trials.check(module, class_of(module), norm, inputs, key) if reason is trials.UNKNOWN else reason


def _changed(module, norm):
    """Names something that the module's code reads and that has changed since it was recognised; returns None if there
    is nothing."""
    for name, value in norm.constants:
        if probes.is_other(getattr(module, name, probes), value):
            return f"its attribute {name}"
    variable = sources.changed(norm.variables) if norm.variables else None
    if variable is not None:
        return f"the variable {variable}"
    if torch.compiler.is_compiling():
        return None
    kind, attributes = class_of(module), vars(module)
    for name, function in norm.functions:
        now = attributes[name] if name in attributes and name != "forward" else getattr(kind, name, None)
        if now is not function:
            return f"its attribute {name}"
    return None


def _is_capturing(x):
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _by_normjit(module, mark, norm, inputs, weight, bias, own):
    x = inputs[0]
    by_kernel = mark.forward and all([t is None or t.dtype == x.dtype for t in (*inputs, weight, bias)])
    if not by_kernel and not torch.is_grad_enabled():
        return own(*inputs)
    eps = probes.eps_of(norm.eps_in(module), x.dtype)
    if len(inputs) == 1:
        applied = lambda x, weight, bias: functional.norm_of(  # noqa: E731
            x, None, weight, bias, norm.norm, eps, norm.weight_offset, None if by_kernel else own)
    else:
        applied = lambda x, gate, weight, bias: gated_norm_of(  # noqa: E731
            x, gate, weight, GatedNorm(norm.norm, norm.groups, eps, norm.weight_offset), None if by_kernel else own)
    y = applied(*inputs, weight, bias)
    if mark.verify and y.requires_grad and not torch.compiler.is_compiling():
        verification.at_backward(mark, module, class_of(module), inputs, y, dataclasses.replace(norm, eps=eps), applied)
    return y
