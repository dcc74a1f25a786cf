# SPDX-License-Identifier: Apache-2.0
"""Recognises which modules are norms, by what they compute and not by their names."""
import dataclasses
import itertools

import torch

from normjit._library import InvalidArgument
from normjit.torch import probes, trials
from normjit.torch.functional import ALL_TYPES
from normjit.torch.modules import LayerNorm, RMSNorm
from normjit.torch.probes import Refused

MARK = "_normjit_patch"  # the attribute with which patch() marks a module
ORIGINAL = "_normjit_original"  # an attribute of such a module's class: the class that it had


@dataclasses.dataclass(frozen=True)
class Found:
    """A module of a model that has the parameters of a norm."""

    name: str
    kind: str  # the name of its class
    norm: str = None  # "layernorm", "rmsnorm"; None: not recognised
    eps: float = None  # None means the eps of the type in which it computes, as in torch.nn.RMSNorm
    eps_name: str = None  # the module's attribute that holds eps, and is read at each call
    weight_offset: float = None
    reason: str = None  # the reason why it is left alone
    patched: bool = False


def check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model: is {type(model).__name__}; must be a torch.nn.Module")


def found(model):
    """Returns all modules of a model whose parameters could be a norm's, and modules without parameters whose name
    says norm, as a list of Found. It does not call the modules: probes run copies with their code and random
    parameters. Raises normjit.InvalidArgument unless given a torch.nn.Module."""
    check_model(model)
    known = {}
    return [look_at(name, module, known)[0] for name, module in model.named_modules()
            if vectors(module) or _is_unweighted_norm(module)]


def class_of(module):
    """Returns the class that a module had before patch()."""
    return getattr(type(module), ORIGINAL, type(module))


def is_patched(module):
    """True if patch() has made a module's backward pass normjit's."""
    return MARK in vars(module) and hasattr(type(module), ORIGINAL) and "forward" not in vars(module)


def vectors(module):
    """Returns the parameters of a module that may be a norm's: one or two vectors of one length, and no modules
    inside."""
    parameters = {name: p for name, p in module._parameters.items() if p is not None}
    shapes = {tuple(p.shape) for p in parameters.values()}
    alone = next(module.children(), None) is None
    return parameters if alone and parameters and len(shapes) == 1 and len(next(iter(shapes))) == 1 else None


def _is_unweighted_norm(module):
    inner = next(itertools.chain(module.parameters(), module.children()), None)
    return inner is None and "norm" in class_of(module).__name__.lower()


def look_at(name, module, known):
    """Returns a module's Found, and its Norm or None. `known` caches results by everything that decides them."""
    kind = class_of(module)
    left = _why_left(module)
    if left is not None:
        return Found(name, kind.__name__, reason=left), None
    parameters = vectors(module)
    attributes = tuple((k, v if probes.is_constant(v) else id(v)) for k, v in vars(module).items()
                       if k not in probes.MODULES_OWN and k != MARK)
    key = (kind, kind.forward, repr(attributes), tuple((k, tuple(p.shape)) for k, p in parameters.items()),
           tuple(module._buffers))
    if key not in known:
        try:
            known[key] = probes.alone(trials.recognise, module, kind)
        except Refused as refused:
            known[key] = str(refused)
    norm = known[key]
    if isinstance(norm, str):
        return Found(name, kind.__name__, reason=norm, patched=is_patched(module)), None
    return Found(name, kind.__name__, norm.norm, norm.eps, norm.eps_name, norm.weight_offset,
                 patched=is_patched(module)), norm


def _why_left(module):
    """Returns why a module needs no probe, or None."""
    parameters = vectors(module)
    if not parameters:
        return "it has no weight"
    if isinstance(module, (LayerNorm, RMSNorm)):
        return "is normjit's already"
    if "forward" in vars(module):
        return "its forward was replaced by another's"
    if isinstance(module, torch.jit.ScriptModule):
        return "it is a torch.jit.ScriptModule, whose forward cannot be replaced"
    if "weight" not in parameters or parameters.keys() - {"weight", "bias"}:
        return f"its parameters are {', '.join(sorted(parameters))}; known: weight, bias"
    wrong = next((p.dtype for p in parameters.values() if p.dtype not in ALL_TYPES), None)
    if wrong is not None:
        return f"its weight is {wrong}; known: {', '.join(map(str, ALL_TYPES))}"
    if 0 in parameters["weight"].shape:
        return "its weight has no elements here; where parameters are sharded, call patch() before that"
    if not trials.epsilons(module):
        return "it has no eps"
    return None
