# SPDX-License-Identifier: Apache-2.0
"""Recognises which modules are norms, by what they compute and not by their names."""
import dataclasses
import inspect
import weakref
from typing import Optional

import torch

from normjit._library import InvalidArgument
from normjit.torch import probes, trials
from normjit.torch.functional import ALL_TYPES
from normjit.torch.modules import LayerNorm, RMSNorm
from normjit.torch.probes import Refused

TORCHS = torch.nn.LayerNorm, torch.nn.RMSNorm
MARK = "_normjit_patch"  # the attribute with which patch() marks a module
ORIGINAL = "_normjit_original"  # an attribute of such a module's class, the class that the module had before
_parameters = weakref.WeakKeyDictionary()  # what parameters_of_forward() returned, by class


@dataclasses.dataclass(frozen=True)
class Found:
    """A module of a model that may be a norm.

    name           its name in the model
    kind           the name of its class
    norm           "layernorm", "rmsnorm", or one with a gate, "gated_rmsnorm"; None: not recognised, see reason
    eps            None: the eps of the type in which it computes, as in torch.nn.RMSNorm
    eps_name       the module's attribute that holds eps, and is read at each call; None if its code has the number
    weight_offset  1 for a zero-centred weight
    reason         the reason why it is left alone
    patched        whether patch() has made its backward pass normjit's
    gated          for a norm that may also be called with a gate: what it then computes"""

    name: str
    kind: str
    norm: Optional[str] = None
    eps: Optional[float] = None
    eps_name: Optional[str] = None
    weight_offset: Optional[float] = None
    reason: Optional[str] = None
    patched: bool = False
    gated: Optional[str] = None


def check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model: is {type(model).__name__}; must be a torch.nn.Module")


def found(model: torch.nn.Module) -> "list[Found]":
    """Returns a list of Found for all modules of a model whose parameters could be a norm's, also before they were
    parametrized, torch's norms of rows, patched modules, and modules whose class has a name with "norm", unless all
    their parameters are those of modules inside. It does not call the modules: probes run copies with their code and
    random parameters. Raises normjit.InvalidArgument unless given a torch.nn.Module."""
    check_model(model)
    known = {}
    return [look_at(name, module, known)[0] for name, module in model.named_modules()
            if vectors(module) or isinstance(module, TORCHS) or is_patched(module) or _is_called_norm(module)
            or _is_parametrized_vector(module)]


def class_of(module):
    """Returns the class that a module had before patch()."""
    return getattr(type(module), ORIGINAL, type(module))


def is_patched(module):
    """True if patch() has made a module's backward pass normjit's."""
    return has_patched_class(module) and "forward" not in vars(module)


def has_patched_class(module):
    """True if patch() has given a module's class its forward. The module may still have another forward of its own."""
    return MARK in vars(module) and hasattr(type(module), ORIGINAL)


def parameters_of_norm(module):
    """Returns the weight and the bias of a module that is a norm; None for one that it has not."""
    mark = vars(module).get(MARK)
    if mark is None:
        names = next(iter(probes.possible_names(module)), probes.NAMES)
    else:
        names = (mark.norm or mark.gated).names
    own = probes.parameters_or_none(module, names)
    return [own.get(name) for name in names]


def has_layer_of_hub(module):
    """True if Hugging Face's kernelize() has given a module the forward of a layer of hub.py."""
    return getattr(vars(module).get("forward"), "__module__", None) == "normjit.torch.hub"


def vectors(module):
    """Returns the parameters of a module that may be a norm's: one or two vectors of one length, and no modules
    inside."""
    parameters = {name: p for name, p in module._parameters.items() if p is not None}
    if any(map(_has_no_shape, parameters.values())):
        return None
    shapes = {tuple(p.shape) for p in parameters.values()}
    alone = next(module.children(), None) is None
    return parameters if alone and parameters and len(shapes) == 1 and len(next(iter(shapes))) == 1 else None


def _has_no_shape(parameter):
    return torch.nn.parameter.is_lazy(parameter) or parameter.is_nested


def _is_called_norm(module):
    if class_of(module).__module__ == torch.nn.utils.parametrizations.__name__:  # weight_norm()'s and spectral_norm()'s
        return False
    own = any(p is not None for p in module._parameters.values())
    return "norm" in class_of(module).__name__.lower() and (own or next(module.children(), None) is None)


def _parametrized(module):
    """Returns the modules that compute a module's parametrized tensors, by the names of these."""
    return dict(module.parametrizations) if torch.nn.utils.parametrize.is_parametrized(module) else {}


def _is_parametrized_vector(module):
    """True if a module's parameters may have been a norm's before they were parametrized, by one tensor each or, as by
    weight_norm(), by a vector and numbers."""
    inside = _parametrized(module).values()
    parameters = [p for each in (module, *inside) for p in each._parameters.values() if p is not None]
    alone = all(name == "parametrizations" for name, _ in module.named_children())
    if not inside or not alone or any(map(_has_no_shape, parameters)):
        return False
    return {1} <= {p.dim() for p in parameters} <= {0, 1}


def look_at(name, module, known):
    """Returns a module's Found, the Norm that it computes from x alone, and the Norm that it computes with a gate; each
    Norm is None if there is none. `known` caches results by everything that decides them."""
    kind = class_of(module)
    left = why_left(module)
    if left is not None:
        return Found(name, kind.__name__, reason=left, patched=is_patched(module)), None, None
    parameters = vectors(module)
    attributes = tuple((k, v if probes.is_constant(v) else id(v)) for k, v in vars(module).items()
                       if k not in probes.MODULES_OWN and k != MARK)
    key = (kind, kind.forward, repr(attributes), tuple((k, tuple(p.shape)) for k, p in parameters.items()),
           tuple(module._parameters), tuple(module._buffers))
    if key not in known:
        known[key] = _recognised(module, kind, False), (
            _recognised(module, kind, True) if len(parameters) == 1 and may_take_gate(kind) else None)
    alone, gated = known[key]
    norms = [norm if isinstance(norm, probes.Norm) else None for norm in (alone, gated)]
    one = norms[0] or norms[1]
    if one is None:
        reason = alone if gated is None else f"{alone}; and with a gate: {gated}"
        return Found(name, kind.__name__, reason=reason, patched=is_patched(module)), None, None
    return Found(name, kind.__name__, one.norm, one.eps, one.eps_name, one.weight_offset, patched=is_patched(module),
                 gated=norms[1] and norms[1].norm), *norms


def _recognised(module, kind, has_gate):
    """Returns the Norm that a module computes, or why it computes none."""
    reasons = []
    for names in probes.possible_names(module):
        try:
            return probes.alone(trials.recognise, module, kind, names, has_gate)
        except Refused as refused:
            reasons.append(str(refused))
    return reasons[0]


def parameters_of_forward(kind):
    """Returns default values by parameter name; None for a forward() with other kinds of parameters."""
    if kind not in _parameters:
        parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
        fit = parameters and all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
        _parameters[kind] = {each.name: each.default for each in parameters} if fit else None
    return _parameters[kind]


def may_take_gate(kind):
    """True if forward() can be called with x and one more argument."""
    parameters = list((parameters_of_forward(kind) or {}).values())
    return len(parameters) > 1 and inspect.Parameter.empty not in parameters[2:]


def _why_no_vectors(module):
    weight = next(module.parameters(), None)
    if weight is None:
        return "it has no weight"
    if _parametrized(module):
        too_late = "" if is_patched(module) else "; call patch() before that"
        return f"its {' and '.join(_parametrized(module))} is parametrized{too_late}"
    if next(module.children(), None) is not None:
        return "it has modules inside"
    if _has_no_shape(weight):
        return "its weight has no shape; a lazy module's gets one at its first call"
    if weight.dim() != 1:
        return f"its weight has {weight.dim()} dimensions; known: 1"
    return "its parameters have several shapes; known: weight and bias of one"


def why_left(module):
    """Returns why a module needs no probe, or None."""
    if isinstance(module, (LayerNorm, RMSNorm)):
        return "is normjit's already"
    parameters = vectors(module)
    if not parameters:
        return _why_no_vectors(module)
    if has_layer_of_hub(module):
        return "is normjit's already, by kernelize()"
    if "forward" in vars(module):
        return "its forward was replaced by another's"
    if isinstance(module, torch.jit.ScriptModule):
        return "it is a torch.jit.ScriptModule, whose forward cannot be replaced"
    if len(parameters) > 2:
        return f"its parameters are {', '.join(sorted(parameters))}; known: a weight, or a weight and a bias"
    if "weight" in module._parameters and "weight" not in parameters:
        return "it has no weight"
    wrong = next((p.dtype for p in parameters.values() if p.dtype not in ALL_TYPES), None)
    if wrong is not None:
        return f"its weight is {wrong}; known: {', '.join(map(str, ALL_TYPES))}"
    if 0 in next(iter(parameters.values())).shape:
        return "its weight has no elements here; where parameters are sharded, call patch() before that"
    if not trials.epsilons(module) and not _is_called_norm(module):  # others' code is not run
        return trials.why_no_eps(module)
    return None
