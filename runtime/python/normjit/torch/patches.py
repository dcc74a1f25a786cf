# SPDX-License-Identifier: Apache-2.0
"""patch(model): norms that are written in Python, recognised by what they compute and not by what they are called."""
import copy
import dataclasses
import functools
import itertools

import torch

from normjit._library import InvalidArgument
from normjit.torch import operators
from normjit.torch.functional import norm_of
from normjit.torch.modules import LayerNorm, RMSNorm

PROBE_SHAPE = (2, 3)  # of the rows: no channel dimension, no batch of one
SMALL = 1e-3  # inputs so small that eps shows
TOLERANCE = 2e-5  # of f32
OFFSETS = (0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Found:
    """A module of a model that has the parameters of a norm."""

    name: str
    kind: str  # the name of its class
    norm: str = None  # "layernorm", "rmsnorm"; None: not recognised
    eps: float = None  # None: that of the type in which it computes, as torch.nn.RMSNorm has it
    eps_name: str = None  # the module's attribute that has it, and is read at each call
    weight_offset: float = None
    reason: str = None  # why it is left alone
    patched: bool = False


def found(model):
    """All modules of a model whose parameters are those of a norm, and those without any that are called one, as a list
    of Found."""
    known = {}
    return [_look_at(name, module, known) for name, module in model.named_modules()
            if _vectors(module) or _is_unweighted_norm(module)]


def patch(model, compiled=False, forward=False):
    """Gives the norms of a model normjit's backward pass, and returns the model; unpatch() takes it away. The forward
    pass and the parameters stay what they are, bit for bit. Patched are modules that compute what LayerNorm or RMSNorm
    do, with a weight as it is or zero-centred; found(model) lists them and says why others are not. torch.nn.LayerNorm,
    which enable() serves, is patched only with compiled=True, for torch.compile, where an operator of normjit's then
    stands in the graph's backward pass in the place of what Inductor would make, or with forward=True.

    forward=True  in eager mode the forward pass, too, is a kernel of normjit's, for inputs of the weight's type: one pass
                  over memory where a module in Python makes many. It rounds once, when y is stored, so that an element
                  may be a step of its type away from the module's.

    Raises normjit.InvalidArgument when there is nothing to patch, and normjit.Unavailable when nothing can be
    served."""
    operators.register()
    known = {}
    patched = 0
    for name, module in model.named_modules():
        if not _vectors(module) or "forward" in vars(module):
            patched += is_patched(module)
            continue
        what = _look_at(name, module, known)
        if what.norm is None or (type(module) is torch.nn.LayerNorm and not (compiled or forward)):
            patched += what.norm is not None
            continue
        module.forward = functools.partial(_forward, module, what.norm, what.eps_name, what.weight_offset, forward)
        patched += 1
    if not patched:
        raise InvalidArgument("the model has no norm that normjit knows; found(model) says what each was taken for")
    return model


def unpatch(model):
    """Takes away what patch() did, and returns the model."""
    for module in model.modules():
        if is_patched(module):
            del module.forward
    return model


def is_patched(module):
    """Whether a module's backward pass is normjit's by patch()."""
    forward = vars(module).get("forward")
    return isinstance(forward, functools.partial) and forward.func is _forward


def _forward(module, norm, eps_name, weight_offset, by_normjit, x, *others, **named):
    """The module's own forward pass, unless it is to be normjit's, and normjit's backward pass where there will be
    one."""
    original = functools.partial(type(module).forward, module)
    weight, bias = module.weight, getattr(module, "bias", None)
    if others or named or not isinstance(x, torch.Tensor) or x.is_nested:
        return original(x, *others, **named)
    by_normjit = by_normjit and all(t is None or t.dtype == x.dtype for t in (weight, bias))
    has_gradient = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    if not (by_normjit or has_gradient) or not _is_served(x, has_gradient):
        return original(x)
    forward_of = None if by_normjit else original
    eps = _eps(getattr(module, eps_name), x.dtype)
    return norm_of(x, None, weight, bias, norm, eps, weight_offset, forward_of=forward_of)


def _is_served(x, has_gradient):
    """Whether x can be an input of norm_of()."""
    if has_gradient and not torch.compiler.is_compiling() and x.is_inference():
        return False  # torch refuses to save it
    return operators.serves(x.device.type)


def _eps(eps, dtype):
    return torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps if eps is None else eps


def _vectors(module):
    """The parameters of a module that may be a norm's: one or two vectors of one length, and no modules inside."""
    parameters = dict(module.named_parameters(recurse=False))
    shapes = {tuple(p.shape) for p in parameters.values()}
    alone = next(module.children(), None) is None
    return parameters if alone and parameters and len(shapes) == 1 and len(next(iter(shapes))) == 1 else None


def _is_unweighted_norm(module):
    inner = next(itertools.chain(module.parameters(), module.children()), None)
    return inner is None and "norm" in type(module).__name__.lower()


def _look_at(name, module, known):
    """What a module is; `known`: of modules that were looked at, by all that decides it."""
    kind = type(module).__name__
    if not _vectors(module):
        return Found(name, kind, reason="it has no weight")
    if isinstance(module, (LayerNorm, RMSNorm)):
        return Found(name, kind, reason="is normjit's already")
    if "forward" in vars(module) and not is_patched(module):
        return Found(name, kind, reason="its forward was replaced by another's")
    constants = tuple(
        sorted((k, v) for k, v in vars(module).items() if isinstance(v, (bool, int, float, str, type(None))))
    )
    key = type(module), constants, tuple((k, tuple(p.shape), p.dtype) for k, p in _vectors(module).items())
    if key not in known:
        known[key] = _recognise(module)
    return Found(name, kind, patched=is_patched(module), **known[key])


def _recognise(module):
    """Fields of Found, by probing a copy with random inputs and weights."""
    names = set(_vectors(module))
    if "weight" not in names or names - {"weight", "bias"}:
        return {"reason": f"its parameters are {', '.join(sorted(names))}; known: weight, bias"}
    epsilons = {k: v for k, v in vars(module).items() if isinstance(v, float) and 0 <= v < 0.1}
    if vars(module).get("eps", 0) is None:
        epsilons["eps"] = None
    if not epsilons:
        return {"reason": "it has no eps"}
    vars_forward = vars(module).get("forward")
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _matching(_probe(module), epsilons)
    except Exception as error:  # whatever a module that is no norm may raise
        return {"reason": f"takes no [.., N] alone: {type(error).__name__}: {error}"}
    finally:
        assert vars(module).get("forward") is vars_forward


def _probe(module):
    """A copy in f32 on the CPU with random weights, and pairs of its inputs and outputs."""
    twin = copy.deepcopy(module)
    vars(twin).pop("forward", None)
    is_meta = any(t.is_meta for t in itertools.chain(twin.parameters(), twin.buffers()))
    twin = (twin.to_empty(device="cpu") if is_meta else twin.cpu()).float().train(module.training)
    for parameter in twin.parameters():
        parameter.copy_(torch.randn_like(parameter))
    x = torch.randn(*PROBE_SHAPE, twin.weight.numel()) + 0.5
    return twin, [(each, twin(each.clone())) for each in (x, x * SMALL)]


def _matching(probe, epsilons):
    twin, pairs = probe
    bias = getattr(twin, "bias", None)
    for norm, offset, (eps_name, eps) in itertools.product(("rmsnorm", "layernorm"), OFFSETS, epsilons.items()):
        if all(_is_close(y, _in_double(norm, x, twin.weight, bias, offset, _eps(eps, x.dtype))) for x, y in pairs):
            return {"norm": norm, "eps": eps, "eps_name": eps_name, "weight_offset": offset}
    return {"reason": "computes neither LayerNorm nor RMSNorm"}


def _is_close(got, wanted):
    if not isinstance(got, torch.Tensor) or got.shape != wanted.shape:
        return False
    return bool((got.double() - wanted).abs().max() <= TOLERANCE * wanted.abs().max())


def _in_double(norm, x, weight, bias, offset, eps):
    x = x.double()
    h = x - x.mean(-1, keepdim=True) if norm == "layernorm" else x
    y = h * (h.square().mean(-1, keepdim=True) + eps).rsqrt() * (weight.double() + offset)
    return y if bias is None else y + bias.double()
