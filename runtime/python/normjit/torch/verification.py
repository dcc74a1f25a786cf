# SPDX-License-Identifier: Apache-2.0
"""patch(verify=True): compares the gradients of a patched norm's first backward pass with those of the module's own
code."""
import math

import torch

from normjit._library import Error
from normjit.torch import gated, probes

LIMITS = {torch.float32: 1e-4, torch.float64: 1e-5, torch.bfloat16: 3e-2, torch.float16: 1e-2}  # the largest distances
                                                                                                # in the 2-norm
TIMES_ITS_OWN = 4  # normjit's gradient may be this many times as far from the gradient in double as the module's own
LARGEST_OF_ITS_OWN = 0.5  # the largest distance of the module's own gradient, in its type, that rounding can explain


def at_backward(mark, module, kind, inputs, y, norm, applied):
    """Compares after the norm's backward pass. `kind` is the class that the module had before patch(). `applied` is
    normjit's function of the inputs and the parameters."""
    device = inputs[0].device.type
    autocast = dict(device_type=device, dtype=torch.get_autocast_dtype(device),
                    enabled=torch.is_autocast_enabled(device))
    inputs = dict(zip(("x", "gate"), (t.detach() for t in inputs)))
    own = probes.parameters_or_none(module, norm.names)
    parameters = {usual: None if own.get(name) is None else own[name].detach()
                  for usual, name in zip(probes.NAMES, norm.names)}
    attributes = {name: value for name, value in vars(module).items() if name not in own}

    def own_gradients(wide):
        """Computes gradients with the module's code, in the types of its tensors, or in double if `wide`."""
        leaves = [t if t is None else _leaf(t, wide) for t in (*inputs.values(), *parameters.values())]
        twin = object.__new__(kind)
        named = {name: leaf for name, leaf in zip(norm.names, leaves[len(inputs):]) if name in own}
        twin.__dict__.update(attributes, _parameters=named)
        with torch.enable_grad(), torch.autocast(**{**autocast, "enabled": autocast["enabled"] and not wide}):
            y = kind.forward(twin, *leaves[: len(inputs)])
        return _gradients(y, leaves)

    def our_gradients():
        leaves = [t if t is None else _leaf(t, False) for t in (*inputs.values(), *parameters.values())]
        with torch.enable_grad():
            y = applied(*leaves)
        return _gradients(y, leaves)

    def _gradients(y, leaves):
        wanted = {name: t for name, t in zip((*inputs, *parameters), leaves) if t is not None}
        found = torch.autograd.grad(y, list(wanted.values()), given[0].to(y.dtype), allow_unused=True)
        return {name: torch.zeros_like(wanted[name]) if t is None else t for name, t in zip(wanted, found)}

    given = []

    def compare(dy):
        if not mark.verify or dy is None or not bool(dy.isfinite().all()):
            return
        mark.verify = False
        given.append(dy.detach())
        ours, own = our_gradients(), own_gradients(False)
        try:
            wide = own_gradients(True)
        except RuntimeError:  # the module's code allows only one type
            wide = own
        sizes = _sizes(inputs, given[0], parameters["weight"], norm)
        for name in ours:
            _check(f"{mark.name or 'the model'} ({kind.__name__})", name, ours[name], own[name], wide[name], sizes[name])

    # Hooks on y itself may run before the hooks by which FSDP2 gathers the weights again.
    number = y.output_nr
    y.grad_fn.register_hook(lambda _, of_outputs: compare(of_outputs[number]))


def _leaf(tensor, wide):
    return (tensor.double() if wide else tensor.clone()).requires_grad_()


def _sizes(inputs, dy, weight, norm):
    """Returns the 2-norms of the terms that are added or subtracted in the gradients. These terms are rounded even if
    little remains of them."""
    x, *gates = (t.double() for t in inputs.values())
    dy = dy.double()
    sizes = {"bias": float(dy.norm())}
    if gates:
        order, function = gated.NAMES[norm.norm]
        factor = torch.sigmoid(gates[0]) * (gates[0] if function == "silu" else 1)
        x, dy = (x * factor, dy) if order == "rmsnorm_of_gated" else (x, dy * factor)
    groups = lambda t: t.unflatten(-1, (norm.groups, -1))  # noqa: E731
    x, dy, weight = groups(x), groups(dy), groups(weight.double())
    centred = x - x.mean(-1, keepdim=True) if norm.norm == "layernorm" else x
    rstd = (centred.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
    g = dy * (weight + norm.weight_offset)
    return {**sizes, "x": float((g * rstd).norm()), "gate": float((g * rstd * x).norm()),
            "weight": float((dy * centred * rstd).norm())}


def _check(module, name, ours, own, wide, size):
    limit = LIMITS[ours.dtype]
    apart, of_its_own = _off(ours, own, size), _off(own, wide, size)
    if apart <= limit:
        return
    allowed = max(limit, TIMES_ITS_OWN * of_its_own)
    if of_its_own > LARGEST_OF_ITS_OWN or _off(ours, wide, size) > allowed:
        raise Error(f"patch(verify=True): {module}: the gradient of {name} differs from that of the module's own code "
                    f"by {apart:.2g} of its 2-norm; rounding explains {limit:.2g}. unpatch() restores the module's own")


def _off(one, other, size):
    one, other = one.double(), other.double()
    error, size = float((one - other).norm()), max(size, float(other.norm()))
    return error / size if size > 0 else (0.0 if error == 0 else math.inf)
